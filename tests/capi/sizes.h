/*
 * Tests of smoke.c: layout and size of structs.
 */
#ifndef SIZES_H
#define SIZES_H

#include "prompt.h"

#include <math.h>
#include <stddef.h>

/* Offsets with 64-bit pointers, which must not change without TABLA_ABI_VERSION. */
static void layout(void) {
    if (sizeof(void *) != 8) {
        return;
    }
    CHECK(sizeof(TablaLoadOptions) == 160);
    CHECK(offsetof(TablaLoadOptions, shader_path) == 24);
    CHECK(offsetof(TablaLoadOptions, progress) == 32);
    CHECK(offsetof(TablaLoadOptions, lm_head_type) == 48);
    CHECK(offsetof(TablaLoadOptions, sequences) == 56);
    CHECK(offsetof(TablaLoadOptions, prefix_bytes) == 72);
    CHECK(offsetof(TablaLoadOptions, pipeline_cache_path) == 96);
    CHECK(offsetof(TablaLoadOptions, gpu_baseline) == 120);
    CHECK(offsetof(TablaLoadOptions, compiled_cache_path) == 144);
    CHECK(sizeof(TablaGenerateOptions) == 224);
    CHECK(offsetof(TablaGenerateOptions, seed) == 32);
    CHECK(offsetof(TablaGenerateOptions, min_tokens) == 56);
    CHECK(offsetof(TablaGenerateOptions, dry_multiplier) == 96);
    CHECK(offsetof(TablaGenerateOptions, speculate) == 120);
    CHECK(offsetof(TablaGenerateOptions, draft_model) == 128);
    CHECK(offsetof(TablaGenerateOptions, stop) == 144);
    CHECK(offsetof(TablaGenerateOptions, dry_sequence_breakers_count) == 200);
    CHECK(offsetof(TablaGenerateOptions, chat) == 208);
    CHECK(offsetof(TablaGenerateOptions, reasoning_budget) == 216);
    CHECK(sizeof(TablaLogitBias) == 8);
    CHECK(offsetof(TablaLogitBias, bias) == 4);
    CHECK(sizeof(TablaLogprob) == 8);
    CHECK(offsetof(TablaLogprob, logprob) == 4);
    CHECK(sizeof(TablaPiece) == 64);
    CHECK(offsetof(TablaPiece, text) == 8);
    CHECK(offsetof(TablaPiece, finish) == 24);
    CHECK(offsetof(TablaPiece, top_logprobs) == 32);
    CHECK(offsetof(TablaPiece, top_logprobs_count) == 40);
    CHECK(offsetof(TablaPiece, status) == 56);
    CHECK(sizeof(TablaStats) == 40);
    CHECK(offsetof(TablaStats, prompt_ms) == 8);
    CHECK(offsetof(TablaStats, finish) == 28);
    CHECK(offsetof(TablaStats, accepted_tokens) == 36);
    CHECK(sizeof(TablaChatOptions) == 56);
    CHECK(offsetof(TablaChatOptions, chat_template_kwargs) == 32);
    CHECK(offsetof(TablaChatOptions, reasoning_effort) == 40);
    CHECK(offsetof(TablaChatOptions, no_parallel_tool_calls) == 48);
    CHECK(sizeof(TablaEmbedOptions) == 32);
    CHECK(offsetof(TablaEmbedOptions, prompt_name) == 24);
    CHECK(sizeof(TablaModelInfo) == 232);
    CHECK(offsetof(TablaModelInfo, parameters) == 40);
    CHECK(offsetof(TablaModelInfo, architecture) == 72);
    CHECK(offsetof(TablaModelInfo, device) == 104);
    CHECK(offsetof(TablaModelInfo, bos_token) == 200);
    CHECK(offsetof(TablaModelInfo, sequences) == 220);
    CHECK(offsetof(TablaModelInfo, labels) == 224);
    CHECK(sizeof(TablaClassifyOptions) == 12);
    CHECK(offsetof(TablaClassifyOptions, truncate) == 8);
    CHECK(sizeof(TablaError) == 4);
    CHECK(sizeof(TablaStatus) == 4);
}

static void sizes(void) {
    struct {
        TablaLoadOptions known;
        char newer[16];
    } grown;
    struct {
        TablaGenerateOptions known;
        char newer[16];
    } generate;
    TablaLoadOptions options = cpu_options();
    TablaGenerateOptions defaults, part;
    TablaModelInfo info;
    uint32_t tokens[64], token = 77;
    TablaModel *model;
    TablaSession *session;
    size_t count;

    layout();
    options.struct_size = 0;
    CHECK(tabla_model_load(NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    options.struct_size = 1u << 30;
    CHECK(tabla_model_load(NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    /* A size that ends inside a field would give half of a pointer. */
    for (options.struct_size = 4; options.struct_size < sizeof options; ++options.struct_size) {
        if (options.struct_size % sizeof(void *) != 0)
            CHECK(tabla_model_load(NULL, &options) == NULL && tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    }
    options = cpu_options();
    options.device = 99;
    CHECK(tabla_model_load(NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    options = cpu_options();
    options.precision = -1;
    CHECK(tabla_model_load(NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);

    memset(&grown, 0, sizeof grown);
    grown.known = cpu_options();
    grown.known.struct_size = sizeof grown;
    grown.newer[15] = 1;
    CHECK(tabla_model_load(NULL, &grown.known) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    grown.newer[15] = 0;
    model = tabla_model_load(NULL, &grown.known);
    session = tabla_model_session(model);
    CHECK(model != NULL && session != NULL);

    FAILS(tabla_generate_options_init(NULL, sizeof defaults), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_generate_options_init(&defaults, 0), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_generate_options_init(&defaults, sizeof defaults) == TABLA_OK);
    CHECK(defaults.struct_size == sizeof defaults && defaults.temperature > 0);
    memset(&part, 0x55, sizeof part);
    CHECK(tabla_generate_options_init(&part, 8) == TABLA_OK);
    CHECK(part.struct_size == 8 && part.max_tokens == UINT32_MAX && part.top_k == 0x55555555);

    info.struct_size = offsetof(TablaModelInfo, architecture) + 8;
    FAILS(tabla_model_info(model, &info), TABLA_ERROR_ARGUMENT);
    info.struct_size = offsetof(TablaModelInfo, device);
    CHECK(tabla_model_info(model, &info) == TABLA_OK && strlen(info.architecture) > 0);
    FAILS(tabla_generate_options_init(&part, 12), TABLA_ERROR_ARGUMENT);

    count = encode_prompt(model, tokens);
    CHECK(tabla_prefill(model, tokens, count) == TABLA_OK);
    CHECK(tabla_session_step(session, &part, &token) == TABLA_OK); /* missing fields have their defaults */
    CHECK(token != 77);
    memset(&generate, 0, sizeof generate);
    CHECK(tabla_generate_options_init(&generate.known, sizeof generate) == TABLA_OK);
    CHECK(generate.known.struct_size == sizeof generate);
    CHECK(tabla_session_step(session, &generate.known, &token) == TABLA_OK);
    generate.newer[0] = 1;
    token = 77;
    FAILS(tabla_session_step(session, &generate.known, &token), TABLA_ERROR_ARGUMENT);
    defaults.top_p = NAN;
    FAILS(tabla_session_step(session, &defaults, &token), TABLA_ERROR_ARGUMENT);
    CHECK(token == 77);
    CHECK(tabla_free_model(model) == TABLA_OK);
}

#endif
