/*
 * What the checks of smoke.c stand on: counting those that hold, the model, its options.
 */
#ifndef CHECK_H
#define CHECK_H

#include "tabla.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int held, failed;

static void check(int truth, const char *what, const char *file, int line) {
    if (truth) {
        held++;
        return;
    }
    failed++;
    printf("%s:%d: %s does not hold; the last error: %d %s\n", file, line, what,
           (int)tabla_last_error_code(), tabla_last_error());
}

#define CHECK(what) check((what), #what, __FILE__, __LINE__)

/* The call fails with this code, and says so in both ways. */
#define FAILS(call, code)                                                                          \
    do {                                                                                           \
        CHECK((call) == (code));                                                                   \
        CHECK(tabla_last_error_code() == (code));                                                  \
        CHECK(tabla_last_error()[0] != '\0');                                                      \
    } while (0)

static TablaLoadOptions on_cpu(void) {
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
    TablaLoadOptions options = on_cpu();
    TablaModel *model = tabla_load_model_with(NULL, &options);
    CHECK(model != NULL);
    if (model == NULL) {
        exit(1);
    }
    return model;
}

static TablaGenerateOptions likeliest(uint32_t max_tokens) {
    TablaGenerateOptions options;
    CHECK(tabla_generate_options_init(&options, sizeof options) == TABLA_OK);
    options.temperature = 0;
    options.max_tokens = max_tokens;
    options.ignore_stops = 1;
    return options;
}

static const char STORY[] = "Once upon a time";

static size_t story(TablaModel *model, uint32_t tokens[64]) {
    size_t count = 0;
    CHECK(tabla_encode(model, STORY, strlen(STORY), TABLA_ENCODE_ADD_SPECIAL, tokens, 64, &count) ==
          TABLA_OK);
    CHECK(count > 0 && count <= 64);
    return count;
}

#endif
