/*
 * Helpers of smoke.c and sessions.c: a prompt, greedy sampling and signal handlers. Include after
 * `#define _POSIX_C_SOURCE 200809L`.
 */
#ifndef PROMPT_H
#define PROMPT_H

#include "check.h"

#include <signal.h>

/* Removes all tokens from the default session. */
static TablaStatus reset(TablaModel *model) {
    return tabla_session_truncate(tabla_model_session(model), 0);
}

static TablaGenerateOptions greedy(uint32_t max_tokens) {
    TablaGenerateOptions options;
    CHECK(tabla_generate_options_init(&options, sizeof options) == TABLA_OK);
    options.temperature = 0;
    options.max_tokens = max_tokens;
    options.ignore_eos = 1;
    return options;
}

static const char PROMPT[] = "Once upon a time";

static size_t encode_prompt(TablaModel *model, uint32_t tokens[64]) {
    size_t count = 0;
    CHECK(tabla_model_tokenize(model, PROMPT, strlen(PROMPT), TABLA_TOKENIZE_ADD_SPECIAL, tokens, 64, &count) ==
          TABLA_OK);
    CHECK(count > 0 && count <= 64);
    return count;
}

/* Reads the signal handlers, which the library does not change. Windows has none. */
#ifdef _WIN32
static void signals(void (*handlers[9])(int)) {
    memset(handlers, 0, 9 * sizeof *handlers);
}
#else
static void signals(void (*handlers[9])(int)) {
    const int all[9] = {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPIPE, SIGUSR1};
    int i;
    for (i = 0; i < 9; i++) {
        struct sigaction action;
        CHECK(sigaction(all[i], NULL, &action) == 0);
        handlers[i] = action.sa_handler;
    }
}
#endif

#endif
