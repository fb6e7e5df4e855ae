/* mote inspect: what a checkpoint folder holds, and the layer plan that mote makes of it. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/running.h"
#include "cli/opts.h"
#include "cli/out.h"

enum { O_TENSORS = 1200, O_LAYERS };

static const cli_usage usage = {
    .command = "inspect",
    .operands = "MODEL",
    .about = "What a checkpoint folder holds: geometry, tensors by class, shards, sizes. Headers\n"
             "are read and checked in full;\n"
             "the weights themselves are not.",
    .opts =
        (const cli_opt[]){
            CLI_ROW_HELP,
            { O_TENSORS, "tensors", NULL, "list every tensor: name, dtype, shape, bytes, shard" },
            { O_LAYERS, "layers", NULL,
              "show the layer plan: per layer its role, ratio, whose KV and whose top-k it uses" },
            CLI_ROW_JSON,
            CLI_ROW_END,
        },
    .notes = "Sizes in bytes. JSON holds everything that --tensors shows; with --layers it is the\n"
             "layer plan, an array.\n"
             "\n"
             "examples:\n"
             "  mote inspect models/nano\n"
             "  mote inspect models/nano --layers\n"
             "  mote inspect models/nano --json | python3 -m json.tool",
};

static int layer_plan(const cli_args *a, char **text, mote_err *err)
{
    mote_model *model = NULL;
    mote_model_params params = { .n_threads = 1, .progress = cli_progress_open };
    int rc = mote_model_open(&model, a->operands[0], &params, err);
    cli_progress_clear();
    if (!rc)
        rc = mote_model_plan_json(model, text, err);
    mote_model_close(model);
    return rc;
}

int cli_inspect(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    int tensors = 0, layers = 0, id;
    while ((id = cli_next(&a)) != CLI_END) {
        tensors |= id == O_TENSORS;
        layers |= id == O_LAYERS;
    }
    cli_operand(&a, 0, "MODEL");
    cli_no_more_operands(&a, 1);
    if (tensors && layers)
        cli_usage_error(&a, "--tensors and --layers exclude each other");

    mote_err err = { 0 };
    char *text = NULL;
    int rc = layers ? layer_plan(&a, &text, &err) : mote_inspect_json(a.operands[0], &text, &err);
    json_t *root = rc ? NULL : json_loads(text, 0, NULL);
    mote_free(text);
    if (!rc && !root)
        rc = mote__fail(&err, MOTE_ENOMEM, "out of memory");
    if (rc)
        return cli_report(&err);
    if (a.json)
        return cli_print_json(root, layers ? JSON_INDENT(1) : JSON_INDENT(2));
    if (tensors && json_is_object(root) && json_object_get(root, "tensors"))
        cli_view_json(stdout, json_object_get(root, "tensors"), 0, NULL);
    else {
        static const char *const skip[] = { "tensors", NULL };
        cli_view_json(stdout, root, 0, skip);
    }
    json_decref(root);
    return cli_flush();
}
