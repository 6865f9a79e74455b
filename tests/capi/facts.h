/*
 * Tests of smoke.c: status names, model information, tokens, tables and devices.
 */
#ifndef FACTS_H
#define FACTS_H

#include "prompt.h"

static void status_names(void) {
    int32_t code;
    CHECK(strcmp(tabla_status_name(TABLA_OK), "TABLA_OK") == 0);
    CHECK(strcmp(tabla_status_name(TABLA_ERROR_BUSY), "TABLA_ERROR_BUSY") == 0);
    for (code = 1; code <= TABLA_ERROR_FORKED; code++) {
        CHECK(strncmp(tabla_status_name(code), "TABLA_ERROR_", 12) == 0);
    }
    CHECK(strcmp(tabla_status_name(TABLA_ERROR_FORKED + 1), "unknown") == 0);
    CHECK(strcmp(tabla_status_name(-1), "unknown") == 0);
}

static void facts(TablaModel *model) {
    uint8_t digest[32], again[32];
    uint32_t stops[8];
    char text[65536];
    size_t count = 0, bytes = 0, sentinel = 4711;
    TablaModelInfo info;
    info.struct_size = sizeof info;
    CHECK(tabla_model_info(model, &info) == TABLA_OK);
    CHECK(info.bos_token < info.vocab && info.eos_token < info.vocab);
    CHECK(info.embedding_dim == 0 && info.is_encoder == 0 && info.sequences == 1);

    CHECK(tabla_model_stop_token_ids(model, NULL, 0, &count) == TABLA_OK && count > 0 && count <= 8);
    CHECK(tabla_model_stop_token_ids(model, stops, 8, &count) == TABLA_OK && stops[0] == info.eos_token);
    FAILS(tabla_model_stop_token_ids(model, stops, 0, &sentinel), TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_model_stop_token_ids(model, stops, 8, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_model_token_bytes(model, info.bos_token, text, sizeof text, &bytes) == TABLA_OK);
    text[bytes] = '\0';
    CHECK(strcmp(text, "<|endoftext|>") == 0);
    FAILS(tabla_model_token_bytes(model, info.vocab, text, sizeof text, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_token_bytes(model, 1, text, sizeof text, NULL), TABLA_ERROR_ARGUMENT);

    CHECK(tabla_model_digest(model, digest) == TABLA_OK && tabla_model_digest(model, again) == TABLA_OK);
    CHECK(memcmp(digest, again, sizeof digest) == 0);
    FAILS(tabla_model_digest(model, NULL), TABLA_ERROR_ARGUMENT);

    CHECK(tabla_model_table(model, NULL, 0, TABLA_TABLE_TEXT, text, sizeof text - 1, &bytes) == TABLA_OK);
    text[bytes] = '\0';
    CHECK(strncmp(text, "; table step, 1 token, ", 23) == 0 && strstr(text, "rms_norm") != NULL);
    CHECK(tabla_model_table(model, "batch", 0, TABLA_TABLE_JSON, NULL, 0, &count) == TABLA_OK);
    CHECK(tabla_model_table(model, "batch", 0, TABLA_TABLE_JSON, text, sizeof text - 1, &bytes) ==
          (count < sizeof text ? TABLA_OK : TABLA_ERROR_TOO_LARGE));
    CHECK(tabla_model_table(model, "step", 5, TABLA_TABLE_TEXT, text, sizeof text - 1, &bytes) == TABLA_OK);
    CHECK(strncmp(text, "; table step, 8 tokens, ", 24) == 0);
    FAILS(tabla_model_table(model, "embed", 0, TABLA_TABLE_TEXT, text, sizeof text, &sentinel),
          TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "step for 8 tokens") != NULL);
    FAILS(tabla_model_table(model, "step", 33, TABLA_TABLE_TEXT, text, sizeof text, &sentinel),
          TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_table(model, NULL, 0, 2, text, sizeof text, &sentinel), TABLA_ERROR_ARGUMENT);
    CHECK(sentinel == 4711);

    CHECK(tabla_device_list(text, sizeof text - 1, &bytes) == TABLA_OK);
    text[bytes] = '\0';
    CHECK(strstr(text, "\"cpu\":{") != NULL && strstr(text, "\"gpus\":[") != NULL);
    FAILS(tabla_device_list(text, 2, &sentinel), TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_device_list(text, 2, NULL), TABLA_ERROR_ARGUMENT);
}

#endif
