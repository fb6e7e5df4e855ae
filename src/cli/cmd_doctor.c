/* mote doctor: the machine as mote sees it. */
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/opts.h"
#include "cli/out.h"

static const cli_usage usage = {
    .command = "doctor",
    .operands = "",
    .about = "What this machine can do for mote: instruction sets and the kernels chosen from\n"
             "them, threads, memory, disk features. Nothing is changed. A wrong MOTE_CPU_MASK or\n"
             "MOTE_THREADS is named here.",
    .opts = (const cli_opt[]){ CLI_ROW_HELP, CLI_ROW_JSON, CLI_ROW_END },
    .notes = "Memory in bytes.\n"
             "\n"
             "examples:\n"
             "  mote doctor\n"
             "  MOTE_CPU_MASK=avx512 mote doctor --json",
};

int cli_doctor(int argc, char **argv)
{
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    while (cli_next(&a) != CLI_END)
        ;
    cli_no_more_operands(&a, 0);
    mote_err err = { 0 };
    char *text = NULL;
    int rc = mote_doctor_json(&text, &err);
    json_t *root = rc ? NULL : json_loads(text, 0, NULL);
    mote_free(text);
    if (!rc && !root)
        rc = mote__fail(&err, MOTE_ENOMEM, "out of memory");
    if (rc)
        return cli_report(&err);
    if (a.json)
        return cli_print_json(root, JSON_INDENT(2));
    cli_view_json(stdout, root, 0, NULL);
    json_decref(root);
    return cli_flush();
}
