/*
 * Helpers of smoke.c and sessions.c: checks, load options, the model and its prompt. Include after
 * `#define _POSIX_C_SOURCE 200809L`.
 */
#ifndef CHECK_H
#define CHECK_H

#include "tabla.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed;

static void check(int is_true, const char *condition, const char *file, int line) {
    if (is_true) {
        passed++;
        return;
    }
    failed++;
    printf("%s:%d: failed: %s; last error: %d %s\n", file, line, condition,
           (int)tabla_last_error_code(), tabla_last_error());
}

#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)

/* The call fails with this code, which is also the last error. */
#define FAILS(call, code)                                                                          \
    do {                                                                                           \
        CHECK((call) == (code));                                                                   \
        CHECK(tabla_last_error_code() == (code));                                                  \
        CHECK(tabla_last_error()[0] != '\0');                                                      \
    } while (0)

static TablaLoadOptions cpu_options(void) {
    TablaLoadOptions options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.device = TABLA_DEVICE_CPU;
    options.precision = TABLA_PRECISION_EXACT;
    options.threads = 2;
    options.max_context = 48;
    return options;
}

/* The built-in model, on two threads. */
static TablaModel *load(void) {
    TablaLoadOptions options = cpu_options();
    TablaModel *model = tabla_model_load(NULL, &options);
    CHECK(model != NULL);
    if (model == NULL) {
        exit(1);
    }
    return model;
}

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

/* Reads the signal handlers, which the library does not change. */
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
