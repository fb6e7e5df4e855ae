/* lab/expert_trace: any bytes as a trace. What is accepted is whole, and every policy can replay
 * it; none misses less in decode than the optimum. */
#include <assert.h>

#include "lab/expert_replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lab_trace t;
    mote_err err = { 0 };
    int rc = lab_trace_parse(&t, "fuzzed", data, size, &err);
    if (rc) {
        assert(rc == err.code && err.message[0] && !t.records && !t.ids);
        return 0;
    }
    size_t bytes = 32 + 12 * t.n_records + 2 * t.n_ids + t.cut_bytes;
    assert(bytes == size);
    for (size_t i = 0; i < t.n_ids; i++)
        assert(t.ids[i] < t.n_experts);
    size_t misses[LAB_POLICIES];
    for (int p = 0; p < LAB_POLICIES && (size_t)t.n_layers * t.n_experts <= 1 << 16; p++) {
        lab_replay_params params = { .n_slots = 1 + size % 13, .seed = size };
        lab_replay_result r;
        rc = lab_replay(&r, &t, (lab_policy)p, &params, &err);
        assert(!rc && r.decode_misses <= r.decode_uses && r.prompt_misses <= r.prompt_uses);
        misses[p] = r.decode_misses;
        for (int k = 0; p == LAB_POLICY_OPTIMUM && k < p; k++)
            assert(misses[p] <= misses[k]);
    }
    lab_trace_deinit(&t);
    return 0;
}
