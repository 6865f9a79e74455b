/*
 * Checks of smoke.c and sessions.c: every function rejects a handle that is not valid.
 */
#ifndef HANDLES_H
#define HANDLES_H

#include "prompt.h"

/* Every other function rejects this handle. */
static void rejects_session_handle(void *handle) {
    TablaSession *session = handle;
    TablaStats stats;
    TablaPiece piece;
    const char *texts[1] = {"a"};
    uint32_t token = 77;
    size_t count = 4711;
    float row[1] = {0.5f};

    stats.struct_size = sizeof stats;
    piece.struct_size = sizeof piece;
    FAILS(tabla_embed(handle, texts, 1, NULL, row, 1, &count), TABLA_ERROR_HANDLE);
    CHECK(tabla_session_new(handle) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    CHECK(tabla_session_load(handle, "f") == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    CHECK(tabla_grammar_new(handle, 0, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_HANDLE);
    FAILS(tabla_grammar_free(handle), TABLA_ERROR_HANDLE);
    CHECK(tabla_session_fork(session) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    FAILS(tabla_session_save(session, "f"), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_free(session), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_cancel(session), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_truncate(session, 0), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_tokens(session, &token, 1, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_prefill(session, &token, 1), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_step(session, NULL, &token), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_logits(session, 0, row, 1, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_embed(session, texts, 1, NULL, row, 1, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_score(session, &token, 2, 1, NULL, 0, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_rerank(session, "a", NULL, texts, 1, row, 1, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_classify(session, texts, NULL, 1, NULL, row, 1, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_generate(session, "a", NULL, NULL, NULL, NULL), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_begin(session, "a", NULL), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_next(session, &piece), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_end(session), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_stats(session, &stats), TABLA_ERROR_HANDLE);
    CHECK(tabla_batch_new(handle) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    FAILS(tabla_batch_add(handle, &token, 1, NULL, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_batch_next(handle, &piece), TABLA_ERROR_HANDLE);
    FAILS(tabla_batch_pending(handle, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_batch_stats(handle, &stats), TABLA_ERROR_HANDLE);
    FAILS(tabla_batch_cancel(handle, 0), TABLA_ERROR_HANDLE);
    FAILS(tabla_batch_free(handle), TABLA_ERROR_HANDLE);
    CHECK(token == 77 && count == 4711 && row[0] == 0.5f);
}

/* Every function of a model rejects this handle. */
static void rejects_handle(TablaModel *handle) {
    TablaModelInfo info;
    uint32_t token = 77;
    size_t count = 4711;
    char piece[4] = "abc";

    info.struct_size = sizeof info;
    info.layers = 4711;
    FAILS(tabla_free_model(handle), TABLA_ERROR_HANDLE);
    CHECK(tabla_model_session(handle) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    FAILS(tabla_prefill(handle, &token, 1), TABLA_ERROR_HANDLE);
    FAILS(tabla_generate(handle, "a", NULL, NULL, NULL, NULL), TABLA_ERROR_HANDLE);
    FAILS(tabla_model_info(handle, &info), TABLA_ERROR_HANDLE);
    FAILS(tabla_model_tokenize(handle, "a", 1, 0, &token, 1, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_model_label(handle, 0, piece, 4, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_model_detokenize(handle, &token, 1, piece, 4, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_model_apply_chat_template(handle, "[]", NULL, piece, 4, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_model_tokenize_chat(handle, "[]", NULL, &token, 1, &count), TABLA_ERROR_HANDLE);
    rejects_session_handle(handle);
    CHECK(token == 77 && count == 4711 && info.layers == 4711);
    CHECK(strcmp(piece, "abc") == 0);
}

#endif
