/* The `mote` command: the table of commands, dispatch, and the general help made from the table. */
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/out.h"

static const cli_command commands[] = {
    { "run", "complete a prompt, streaming the text", cli_run },
    { "chat", "talk to a model in the terminal, with the session kept", cli_chat },
    { "plan", "the sums before loading: cache bytes, weights, what fits", cli_plan },
    { "eval", "perplexity, KL to the bf16 cache, memory and speed, per format", cli_eval },
    { "tune", "choose a format for each part of the cache under a byte budget", cli_tune },
    { "ladder", "longer and longer contexts: memory, speed, quality, until one fails", cli_ladder },
    { "experts", "which experts stay in memory: policies replayed on routing", cli_experts },
    { "bench", "kernels and whole steps, as ratios to limits of the same run", cli_bench },
    { "inspect", "what a checkpoint folder holds", cli_inspect },
    { "tokenize", "text to token ids and back", cli_tokenize },
    { "logits", "write logits to a safetensors file, to compare with a reference", cli_logits },
    { "kv", "look at the persistent store of cache blocks and maintain it", cli_kv },
    { "doctor", "what this machine can do", cli_doctor },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const cli_command *find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static void help(void)
{
    printf("mote %s: run DeepSeek-V4.1-Flash and its small relatives with a cache of 890 bytes a "
           "token\n\n"
           "usage: mote COMMAND [OPTIONS]\n\n",
           mote_version());
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("\n'mote COMMAND --help' tells all about one command; 'mote --version' prints the "
           "version.\n"
           "Results go to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 "
           "wrong usage, 130 Ctrl-C,\n"
           "143 SIGTERM, 129 SIGHUP.\n"
           "\nexample: mote run models/nano -p 'It was a truth' -n 64\n");
}

static int run_command(const cli_command *command, int argc, char **argv)
{
    int rc = command->main(argc, argv);
    int flushed = cli_flush();
    cli_signals_finish();
    return rc ? rc : flushed;
}

/* A descriptor of the three that is closed would be given to the next file that is opened, and text
 * for people would flow into it. It gets a place where reading and writing fail as on a closed one.
 */
static void hold_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            _exit(CLI_FAILED);
}

int main(int argc, char **argv)
{
    hold_standard_descriptors();
    /* Characters only: numbers must keep their decimal point. */
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8"))
        setlocale(LC_CTYPE, "C.UTF-8");
    cli_signals_init();

    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        fprintf(stderr, "mote: a command is missing (try 'mote --help')\n");
        return CLI_USAGE;
    }
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("mote %s\n", mote_version());
        return cli_flush();
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || (!strcmp(name, "help") && argc == 2)) {
        help();
        return cli_flush();
    }
    if (!strcmp(name, "help")) {
        const cli_command *command = find(argv[2]);
        if (command) {
            char *fake[] = { argv[2], (char[]){ "--help" }, NULL };
            return run_command(command, 2, fake);
        }
        name = argv[2];
    }
    const cli_command *command = find(name);
    if (!command) {
        cli_say("mote: unknown %s '%s' (try 'mote --help')", name[0] == '-' ? "option" : "command",
                name);
        return CLI_USAGE;
    }
    return run_command(command, argc - 1, argv + 1);
}
