/*
 * Helpers of smoke.c, sessions.c, hooks.c and transcribe.c: checks, load options and the built-in model.
 */
#ifndef CHECK_H
#define CHECK_H

#include "tabla.h"

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

#endif
