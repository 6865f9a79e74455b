/*
 * Tests of sessions.c: embeddings and context shift.
 */
#ifndef EMBEDDINGS_H
#define EMBEDDINGS_H

#include "prompt.h"

#include <math.h>

/* Embeddings of the built-in model, which configures no pooling. They do not change the sequence of the default session. */
static void embeddings(void) {
    static const char *const texts[] = {"Once upon a time", "", "Lily had a red ball."};
    TablaLoadOptions loading = cpu_options();
    TablaEmbedOptions options;
    TablaGenerateOptions sampling = greedy(UINT32_MAX);
    TablaModelInfo info;
    TablaModel *model = load();
    TablaSession *session;
    uint32_t tokens[64], first, second, again;
    size_t count = 0, needed = 0, sentinel = 4711, i, k;
    float *rows, *alone;

    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.pooling = TABLA_POOLING_MEAN;
    FAILS(tabla_embed(model, texts, 3, &options, NULL, 0, &sentinel), TABLA_ERROR_STATE);
    CHECK(tabla_free_model(model) == TABLA_OK);
    loading.embeddings = 1;
    loading.max_context = 16;
    model = tabla_model_load(NULL, &loading);
    session = tabla_model_session(model);
    info.struct_size = sizeof info;
    CHECK(tabla_model_info(model, &info) == TABLA_OK);
    CHECK(tabla_embed(model, texts, 3, &options, NULL, 0, &needed) == TABLA_OK);
    CHECK(needed == (size_t)3 * info.dim && info.embedding_dim == info.dim);
    CHECK(info.embedding_max_tokens == 16);
    rows = malloc(needed * sizeof *rows);
    alone = malloc(needed * sizeof *alone);
    if (rows == NULL || alone == NULL) {
        exit(1);
    }

    count = encode_prompt(model, tokens);
    CHECK(tabla_prefill(model, tokens, count) == TABLA_OK);
    CHECK(tabla_session_step(session, &sampling, &first) == TABLA_OK);
    CHECK(tabla_session_step(session, &sampling, &second) == TABLA_OK);
    CHECK(reset(model) == TABLA_OK);
    CHECK(tabla_prefill(model, tokens, count) == TABLA_OK);
    CHECK(tabla_session_step(session, &sampling, &again) == TABLA_OK && again == first);
    CHECK(tabla_embed(model, texts, 3, &options, rows, needed, &count) == TABLA_OK);
    CHECK(count == needed);
    CHECK(tabla_session_step(session, &sampling, &again) == TABLA_OK && again == second);
    for (i = 0; i < 3; i++) {
        double squares = 0;
        CHECK(tabla_embed(model, texts + i, 1, &options, alone, info.dim, &count) == TABLA_OK);
        CHECK(memcmp(alone, rows + i * info.dim, info.dim * sizeof *alone) == 0);
        for (k = 0; k < info.dim; k++) {
            squares += (double)alone[k] * alone[k];
        }
        CHECK(fabs(squares - 1) < 1e-5);
    }
    options.dimensions = 3;
    options.normalize = -1;
    CHECK(tabla_embed(model, texts, 1, &options, alone, needed, &count) == TABLA_OK && count == 3);
    CHECK(alone[0] * rows[0] > 0 && alone[0] != rows[0]);

    FAILS(tabla_embed(model, texts, 1, &options, alone, 2, &sentinel), TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_embed(model, NULL, 1, &options, alone, needed, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_embed(model, texts, 1, NULL, alone, needed, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_embed(model, texts, 1, &options, alone, needed, NULL), TABLA_ERROR_ARGUMENT);
    options.prompt_name = "query";
    FAILS(tabla_embed(model, texts, 1, &options, alone, needed, &sentinel), TABLA_ERROR_ARGUMENT);
    options.prompt_name = NULL;
    options.pooling = 9;
    FAILS(tabla_embed(model, texts, 1, &options, alone, needed, &sentinel), TABLA_ERROR_ARGUMENT);
    CHECK(sentinel == 4711);
    free(rows);
    free(alone);

    /* A full context ends an answer, or is shifted. */
    CHECK(reset(model) == TABLA_OK);
    CHECK(tabla_prefill(model, tokens, 3) == TABLA_OK);
    {
        TablaGenerateOptions generate = greedy(20);
        TablaStats stats;
        stats.struct_size = sizeof stats;
        CHECK(tabla_generate(model, NULL, &generate, NULL, NULL, &stats) == TABLA_OK);
        CHECK(stats.finish == TABLA_FINISH_CONTEXT && stats.tokens < 20);
        generate.max_tokens = 10;
        generate.context_shift = 1;
        generate.n_keep = 3;
        CHECK(tabla_generate(model, NULL, &generate, NULL, NULL, &stats) == TABLA_OK);
        CHECK(stats.finish == TABLA_FINISH_LENGTH && stats.tokens == 10);
    }
    CHECK(tabla_free_model(model) == TABLA_OK);
}

#endif
