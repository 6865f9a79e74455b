/*
 * Tests of chats, sessions, pieces, batches, grammars, scores, embeddings and all options. Prints the
 * number of passed checks, and a line for each failed one.
 *
 *     sessions <file to write>
 */
#define _POSIX_C_SOURCE 200809L

#include "chats.h"
#include "prompt.h"
#include "classification.h"
#include "embeddings.h"
#include "handles.h"

#include <math.h>

/* Reads an answer to its end. Returns the length of its text in bytes; `text` may be NULL. */
static size_t read_answer(TablaSession *session, char *text, size_t capacity, uint32_t *tokens, int *finish) {
    TablaPiece piece;
    size_t bytes = 0;
    *tokens = 0;
    memset(&piece, 0x55, sizeof piece);
    piece.struct_size = sizeof piece;
    for (;;) {
        CHECK(tabla_session_next(session, &piece) == TABLA_OK);
        CHECK(piece.struct_size == sizeof piece && piece.text[piece.text_bytes] == '\0');
        if (piece.finish != TABLA_FINISH_NONE) {
            break;
        }
        if (text != NULL && bytes + piece.text_bytes < capacity) {
            memcpy(text + bytes, piece.text, piece.text_bytes);
        }
        bytes += piece.text_bytes;
        ++*tokens;
    }
    CHECK(piece.text_bytes == 0 && isnan(piece.logprob) && piece.top_logprobs_count == 0);
    *finish = piece.finish;
    if (text != NULL && capacity > 0) {
        text[bytes < capacity ? bytes : capacity - 1] = '\0';
    }
    return bytes;
}

/* The default session: the short functions use it, and only its model frees it. */
static void default_session(void) {
    TablaModel *model = load();
    TablaSession *session = tabla_model_session(model), *fork;
    TablaGenerateOptions options = greedy(4);
    TablaPiece piece;
    uint32_t tokens[64], found[64];
    size_t count = encode_prompt(model, tokens), kept = 0;

    piece.struct_size = sizeof piece;
    CHECK(session != NULL && tabla_model_session(model) == session);
    CHECK(tabla_prefill(model, tokens, count) == TABLA_OK);
    CHECK(tabla_session_tokens(session, found, 64, &kept) == TABLA_OK);
    CHECK(kept == count && memcmp(tokens, found, count * sizeof *tokens) == 0);
    CHECK(tabla_generate(model, NULL, &options, NULL, NULL, NULL) == TABLA_OK);
    CHECK(tabla_session_tokens(session, NULL, 0, &kept) == TABLA_OK && kept == count + 4);
    fork = tabla_session_fork(session);
    CHECK(tabla_session_truncate(session, count) == TABLA_OK);
    CHECK(tabla_session_tokens(fork, NULL, 0, &kept) == TABLA_OK && kept == count + 4);

    /* An answer that is read piece by piece blocks the short functions, too. */
    CHECK(tabla_session_begin(session, NULL, &options) == TABLA_OK);
    FAILS(tabla_prefill(model, tokens, 1), TABLA_ERROR_STATE);
    CHECK(tabla_session_next(session, &piece) == TABLA_OK);
    CHECK(tabla_session_end(session) == TABLA_OK);
    CHECK(tabla_prefill(model, tokens, 1) == TABLA_OK);

    FAILS(tabla_session_free(session), TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "tabla_free_model") != NULL);
    CHECK(tabla_session_truncate(session, 0) == TABLA_OK);
    CHECK(tabla_free_model(model) == TABLA_OK);
    FAILS(tabla_session_truncate(session, 0), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_free(session), TABLA_ERROR_HANDLE);
    CHECK(tabla_model_session(model) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    /* Other sessions keep the weights alive. */
    CHECK(tabla_session_step(fork, NULL, found) == TABLA_OK && tabla_session_free(fork) == TABLA_OK);
}

/* Two sessions in turns generate the same tokens as the default session alone. */
static void two_sessions(TablaModel *model) {
    TablaGenerateOptions options = greedy(6);
    TablaSession *own = tabla_model_session(model), *fork;
    TablaSession *one = tabla_session_new(model), *two = tabla_session_new(model);
    uint32_t tokens[64], expected[64], found[64], token;
    size_t count = encode_prompt(model, tokens), all = 0, i;

    CHECK(one != NULL && two != NULL && one != two);
    CHECK(tabla_prefill(model, tokens, count) == TABLA_OK);
    for (i = 0; i < 6; i++) {
        CHECK(tabla_session_step(own, &options, expected + i) == TABLA_OK);
    }
    CHECK(tabla_session_prefill(one, tokens, count) == TABLA_OK);
    CHECK(tabla_session_prefill(two, tokens, count) == TABLA_OK);
    for (i = 0; i < 6; i++) {
        CHECK(tabla_session_step(one, &options, &token) == TABLA_OK && token == expected[i]);
        CHECK(tabla_session_step(two, &options, &token) == TABLA_OK && token == expected[i]);
    }
    CHECK(tabla_session_tokens(one, NULL, 0, &all) == TABLA_OK && all == count + 6);
    FAILS(tabla_session_tokens(one, found, all - 1, &all), TABLA_ERROR_TOO_LARGE);
    CHECK(tabla_session_tokens(one, found, 64, &all) == TABLA_OK);
    CHECK(memcmp(found, tokens, count * sizeof *found) == 0);
    CHECK(memcmp(found + count, expected, 6 * sizeof *found) == 0);

    /* A fork is independent of the truncated original. */
    fork = tabla_session_fork(one);
    CHECK(fork != NULL && tabla_session_truncate(one, count + 2) == TABLA_OK);
    CHECK(tabla_session_step(one, &options, &token) == TABLA_OK && token == expected[2]);
    CHECK(tabla_session_tokens(fork, NULL, 0, &all) == TABLA_OK && all == count + 6);
    CHECK(tabla_session_free(one) == TABLA_OK);
    FAILS(tabla_session_step(one, &options, &token), TABLA_ERROR_HANDLE);
    CHECK(tabla_session_step(fork, &options, &token) == TABLA_OK);
    CHECK(tabla_session_free(fork) == TABLA_OK && tabla_session_free(two) == TABLA_OK);
    CHECK(reset(model) == TABLA_OK);
}

static void pieces(TablaModel *model) {
    TablaGenerateOptions options = greedy(12);
    TablaSession *session = tabla_session_new(model);
    TablaStats stats;
    TablaPiece piece;
    char text[512], cut[512], older[8];
    const char *stop[1];
    uint32_t tokens, ids[64];
    size_t count;
    int finish, i;

    memset(&stats, 0x55, sizeof stats);
    stats.struct_size = sizeof stats;
    piece.struct_size = sizeof piece;
    FAILS(tabla_session_next(session, &piece), TABLA_ERROR_STATE);
    FAILS(tabla_session_stats(session, &stats), TABLA_ERROR_STATE);
    CHECK(tabla_session_end(session) == TABLA_OK);
    FAILS(tabla_session_begin(session, NULL, &options), TABLA_ERROR_STATE);
    FAILS(tabla_session_begin(session, "\xff", &options), TABLA_ERROR_ARGUMENT);
    /* A rejected call does not change the sequence. */
    options.logprobs = 21;
    FAILS(tabla_session_begin(session, PROMPT, &options), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_generate(session, PROMPT, &options, NULL, NULL, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_session_tokens(session, NULL, 0, &count) == TABLA_OK && count == 0);
    options.reserved = 1;
    options.logprobs = 3;
    FAILS(tabla_session_begin(session, PROMPT, &options), TABLA_ERROR_ARGUMENT);
    options.reserved = 0;
    CHECK(tabla_session_begin(session, PROMPT, &options) == TABLA_OK);
    FAILS(tabla_session_next(session, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_session_next(session, &piece) == TABLA_OK);
    CHECK(piece.finish == TABLA_FINISH_NONE && piece.top_logprobs_count == 3);
    CHECK(piece.top_logprobs[0].token == piece.token);
    CHECK(piece.top_logprobs[0].logprob == piece.logprob && piece.logprob < 0);
    CHECK(piece.top_logprobs[0].logprob >= piece.top_logprobs[1].logprob);

    /* During an answer the session rejects other calls; the default session does not. */
    FAILS(tabla_session_truncate(session, 0), TABLA_ERROR_STATE);
    FAILS(tabla_session_begin(session, PROMPT, &options), TABLA_ERROR_STATE);
    CHECK(tabla_session_fork(session) == NULL && tabla_last_error_code() == TABLA_ERROR_STATE);
    count = encode_prompt(model, ids);
    CHECK(tabla_prefill(model, ids, count) == TABLA_OK && reset(model) == TABLA_OK);
    CHECK(tabla_session_stats(session, &stats) == TABLA_OK);
    CHECK(stats.finish == TABLA_FINISH_NONE && stats.tokens == 1);
    read_answer(session, text, sizeof text, &tokens, &finish);
    CHECK(tokens == 11 && finish == TABLA_FINISH_LENGTH);
    CHECK(tabla_session_stats(session, &stats) == TABLA_OK);
    CHECK(stats.tokens == 12 && stats.finish == TABLA_FINISH_LENGTH);
    CHECK(stats.prompt_tokens == count && stats.prompt_ms > 0 && stats.predicted_ms > 0);
    FAILS(tabla_session_next(session, &piece), TABLA_ERROR_STATE);

    /* The text ends before the stop string, and is the same up to there. */
    options.logprobs = -1;
    CHECK(tabla_session_truncate(session, 0) == TABLA_OK);
    CHECK(tabla_session_begin(session, PROMPT, &options) == TABLA_OK);
    read_answer(session, text, sizeof text, &tokens, &finish);
    stop[0] = text + 6;
    CHECK(strlen(text) > 12);
    text[9] = '\0';
    options.stop = stop;
    options.stop_count = 1;
    CHECK(tabla_session_truncate(session, 0) == TABLA_OK);
    CHECK(tabla_session_begin(session, PROMPT, &options) == TABLA_OK);
    read_answer(session, cut, sizeof cut, &tokens, &finish);
    CHECK(finish == TABLA_FINISH_STOP && strlen(cut) <= 6 && strncmp(cut, text, strlen(cut)) == 0);
    options.stop_count = (size_t)-1 / 8;
    FAILS(tabla_session_begin(session, PROMPT, &options), TABLA_ERROR_ARGUMENT);
    options.stop_count = 0;

    /* Ended early: the sequence has the tokens that were read, and can be continued. */
    CHECK(tabla_session_truncate(session, 0) == TABLA_OK);
    CHECK(tabla_session_begin(session, PROMPT, &options) == TABLA_OK);
    for (i = 0; i < 3; i++) {
        CHECK(tabla_session_next(session, &piece) == TABLA_OK);
    }
    CHECK(tabla_session_end(session) == TABLA_OK);
    CHECK(tabla_session_tokens(session, ids, 64, &count) == TABLA_OK);
    CHECK(count == stats.prompt_tokens + 3 && ids[count - 1] == piece.token);
    CHECK(tabla_session_stats(session, &stats) == TABLA_OK);
    CHECK(stats.finish == TABLA_FINISH_CALLBACK && stats.tokens >= 3);

    /* Cancelled between two pieces, and freed during an answer. */
    CHECK(tabla_session_begin(session, NULL, &options) == TABLA_OK);
    CHECK(tabla_session_cancel(session) == TABLA_OK);
    read_answer(session, NULL, 0, &tokens, &finish);
    CHECK(finish == TABLA_FINISH_CANCELLED && tokens == 0);
    CHECK(tabla_session_truncate(session, 4) == TABLA_OK);
    CHECK(tabla_session_begin(session, NULL, &options) == TABLA_OK);
    memset(older, 0x55, sizeof older);
    piece.struct_size = 8; /* an older program: only the token */
    CHECK(tabla_session_next(session, &piece) == TABLA_OK && piece.struct_size == 8);
    CHECK(tabla_session_free(session) == TABLA_OK);
    FAILS(tabla_session_next(session, &piece), TABLA_ERROR_HANDLE);
}

static void saved(TablaModel *model, const char *path) {
    TablaGenerateOptions options = greedy(UINT32_MAX);
    TablaSession *session = tabla_session_new(model), *loaded;
    uint32_t tokens[64], expected, token;
    size_t count = encode_prompt(model, tokens);

    CHECK(tabla_session_prefill(session, tokens, count) == TABLA_OK);
    CHECK(tabla_session_save(session, path) == TABLA_OK);
    CHECK(tabla_session_step(session, &options, &expected) == TABLA_OK);
    loaded = tabla_session_load(model, path);
    CHECK(loaded != NULL);
    CHECK(tabla_session_step(loaded, &options, &token) == TABLA_OK && token == expected);
    CHECK(tabla_session_free(session) == TABLA_OK && tabla_session_free(loaded) == TABLA_OK);
    FAILS(tabla_session_save(NULL, path), TABLA_ERROR_HANDLE);
    CHECK(tabla_session_load(model, "there/is/no/such") == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_IO);
    CHECK(tabla_session_load(model, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
}

static void grammars(TablaModel *model) {
    TablaGenerateOptions options = greedy(40);
    TablaSession *session = tabla_session_new(model);
    TablaGrammar *grammar = tabla_grammar_new(model, TABLA_GRAMMAR_REGEX, "(red|blue) ball");
    TablaModel *other;
    char text[64];
    uint32_t tokens;
    int finish;

    CHECK(grammar != NULL);
    options.grammar = grammar;
    options.ignore_eos = 0;
    CHECK(tabla_session_begin(session, PROMPT, &options) == TABLA_OK);
    CHECK(tabla_grammar_free(grammar) == TABLA_OK); /* the answer continues */
    read_answer(session, text, sizeof text, &tokens, &finish);
    CHECK(finish == TABLA_FINISH_STOP);
    CHECK(strcmp(text, "red ball") == 0 || strcmp(text, "blue ball") == 0);
    FAILS(tabla_session_begin(session, PROMPT, &options), TABLA_ERROR_HANDLE);
    CHECK(strstr(tabla_last_error(), "grammar") != NULL);
    FAILS(tabla_grammar_free(grammar), TABLA_ERROR_HANDLE);

    CHECK(tabla_grammar_new(model, TABLA_GRAMMAR_REGEX, "(") == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_GRAMMAR);
    CHECK(tabla_grammar_new(model, TABLA_GRAMMAR_REGEX, NULL) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_grammar_new(model, TABLA_GRAMMAR_JSON_SCHEMA, "{") == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_GRAMMAR);
    CHECK(tabla_grammar_new(model, 9, "a") == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);

    /* A grammar can only be used with its model. All kinds can be compiled. */
    other = load();
    grammar = tabla_grammar_new(other, TABLA_GRAMMAR_JSON_OBJECT, NULL);
    CHECK(grammar != NULL);
    options.grammar = grammar;
    FAILS(tabla_session_begin(session, PROMPT, &options), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_grammar_free(grammar) == TABLA_OK && tabla_free_model(other) == TABLA_OK);
    grammar = tabla_grammar_new(model, TABLA_GRAMMAR_JSON_SCHEMA, "{\"type\": \"boolean\"}");
    CHECK(grammar != NULL && tabla_grammar_free(grammar) == TABLA_OK);
    grammar = tabla_grammar_new(model, TABLA_GRAMMAR_LARK, "start: \"a\" | \"b\"");
    CHECK(grammar != NULL && tabla_grammar_free(grammar) == TABLA_OK);
    grammar = tabla_grammar_new(model, TABLA_GRAMMAR_GBNF, "root ::= \"a\" | \"b\"");
    CHECK(grammar != NULL && tabla_grammar_free(grammar) == TABLA_OK);
    CHECK(tabla_session_free(session) == TABLA_OK);
}

/* Scores match the logits. */
static void scores(TablaModel *model) {
    TablaSession *session = tabla_session_new(model);
    const char *const documents[] = {"a", "b"};
    uint32_t tokens[64];
    float scores[64], *row;
    size_t count = encode_prompt(model, tokens), scored = 0, vocab, sentinel = 4711, i;
    double largest = -1e30, sum = 0;

    CHECK(tabla_session_score(session, tokens, count, 1, NULL, 0, &scored) == TABLA_OK);
    CHECK(scored == count - 1);
    CHECK(tabla_session_score(session, tokens, count, 1, scores, 64, &scored) == TABLA_OK);
    CHECK(tabla_session_prefill(session, tokens, count - 1) == TABLA_OK);
    CHECK(tabla_session_logits(session, TABLA_LOGITS_LAST, NULL, 0, &vocab) == TABLA_OK);
    row = malloc(vocab * sizeof *row);
    if (row == NULL) {
        exit(1);
    }
    CHECK(tabla_session_logits(session, TABLA_LOGITS_LAST, row, vocab, &vocab) == TABLA_OK);
    for (i = 0; i < vocab; i++) {
        largest = fmax(largest, row[i]);
    }
    for (i = 0; i < vocab; i++) {
        sum += exp(row[i] - largest);
    }
    CHECK(fabs(row[tokens[count - 1]] - largest - log(sum) - scores[count - 2]) < 1e-3);
    free(row);
    FAILS(tabla_session_score(session, tokens, count, 0, scores, 64, &sentinel),
          TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_score(session, tokens, count, count, scores, 64, &sentinel),
          TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_score(session, tokens, count, 1, scores, 1, &sentinel),
          TABLA_ERROR_TOO_LARGE);
    /* The story model is not a reranker. */
    CHECK(tabla_session_rerank(session, "q", NULL, documents, 2, NULL, 0, &scored) == TABLA_OK);
    CHECK(scored == 2);
    FAILS(tabla_session_rerank(session, "q", NULL, documents, 2, scores, 64, &sentinel),
          TABLA_ERROR_UNSUPPORTED);
    FAILS(tabla_session_rerank(session, "q", NULL, NULL, 2, scores, 64, &sentinel),
          TABLA_ERROR_ARGUMENT);
    CHECK(sentinel == 4711);
    CHECK(tabla_session_free(session) == TABLA_OK);
}

/* Options are applied, and errors name the invalid one. */
static void options_of_all_kinds(TablaModel *model) {
    TablaSession *session = tabla_session_new(model);
    TablaGenerateOptions options = greedy(4);
    TablaLoadOptions loading = cpu_options();
    TablaModel *draft = load(), *other;
    TablaLogitBias biases[2];
    TablaStats stats;
    uint32_t tokens, plain[64], found[64];
    size_t count, again;
    int finish;

    stats.struct_size = sizeof stats;
    CHECK(tabla_session_generate(session, PROMPT, &options, NULL, NULL, &stats) == TABLA_OK);
    CHECK(tabla_session_tokens(session, plain, 64, &count) == TABLA_OK);
    /* Speculation does not change the tokens. */
    options.speculate = TABLA_SPECULATE_DRAFT;
    options.draft_model = draft;
    CHECK(tabla_session_truncate(session, 0) == TABLA_OK);
    CHECK(tabla_session_begin(session, PROMPT, &options) == TABLA_OK);
    read_answer(session, NULL, 0, &tokens, &finish);
    CHECK(tabla_session_tokens(session, found, 64, &again) == TABLA_OK && again == count);
    CHECK(memcmp(plain, found, count * sizeof *plain) == 0);
    options.draft_model = NULL;
    FAILS(tabla_session_begin(session, PROMPT, &options), TABLA_ERROR_HANDLE);
    CHECK(strstr(tabla_last_error(), "draft_model") != NULL);
    options.speculate = 9;
    FAILS(tabla_session_begin(session, PROMPT, &options), TABLA_ERROR_ARGUMENT);
    options.speculate = TABLA_SPECULATE_OFF;
    /* The likeliest token is banned. */
    biases[0].token = plain[stats.prompt_tokens];
    biases[0].bias = -INFINITY;
    biases[1].token = plain[stats.prompt_tokens];
    biases[1].bias = 1;
    options.logit_bias = biases;
    options.logit_bias_count = 2;
    CHECK(tabla_session_truncate(session, 0) == TABLA_OK);
    CHECK(tabla_session_generate(session, PROMPT, &options, NULL, NULL, NULL) == TABLA_OK);
    CHECK(tabla_session_tokens(session, found, 64, &again) == TABLA_OK);
    CHECK(found[stats.prompt_tokens] != plain[stats.prompt_tokens]);
    options.logit_bias_count = 0;
    options.mirostat_tau = -1;
    FAILS(tabla_session_begin(session, PROMPT, &options), TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "mirostat_tau") != NULL);
    CHECK(tabla_free_model(draft) == TABLA_OK && tabla_session_free(session) == TABLA_OK);

    loading.sequences = 3;
    loading.cache_type = TABLA_CACHE_F16;
    loading.chunk_tokens = 8;
    loading.prefix_bytes = TABLA_PREFIX_NONE;
    other = tabla_model_load(NULL, &loading);
    CHECK(other != NULL && tabla_free_model(other) == TABLA_OK);
    loading.cache_type = TABLA_CACHE_Q8_0; /* the attention heads are smaller than a q8_0 block */
    CHECK(tabla_model_load(NULL, &loading) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_UNSUPPORTED);
    loading.cache_type = 9;
    CHECK(tabla_model_load(NULL, &loading) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
}

/* A batch gives the same answers as sessions. */
static void batches(TablaModel *model) {
    enum { COUNT = 5 };
    TablaBatch *batch = tabla_batch_new(model);
    TablaGenerateOptions options = greedy(UINT32_MAX);
    TablaSession *session = tabla_session_new(model);
    char texts[COUNT][256], expected[256];
    uint32_t tokens[64], taken;
    size_t count = encode_prompt(model, tokens), request = 0, pending = 0, sentinel = 4711, i;
    int ended = 0, finish;
    TablaPiece piece;
    TablaStats stats;

    piece.struct_size = sizeof piece;
    stats.struct_size = sizeof stats;
    memset(texts, 0, sizeof texts);
    CHECK(batch != NULL);
    FAILS(tabla_batch_next(batch, &piece), TABLA_ERROR_STATE);
    FAILS(tabla_batch_stats(batch, &stats), TABLA_ERROR_STATE);
    FAILS(tabla_batch_add(batch, tokens, 0, &options, &sentinel), TABLA_ERROR_STATE);
    FAILS(tabla_batch_add(batch, NULL, 1, &options, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_batch_add(batch, tokens, count, &options, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(sentinel == 4711);
    for (i = 0; i < COUNT; i++) {
        options.max_tokens = 3 + (uint32_t)i;
        CHECK(tabla_batch_add(batch, tokens, count - i % 2, &options, &request) == TABLA_OK);
        CHECK(request == i);
    }
    CHECK(tabla_batch_pending(batch, &pending) == TABLA_OK && pending == COUNT);
    while (ended < COUNT) {
        CHECK(tabla_batch_next(batch, &piece) == TABLA_OK);
        CHECK(piece.request < COUNT && piece.status == TABLA_OK);
        if (piece.finish == TABLA_FINISH_NONE) {
            strcat(texts[piece.request], piece.text);
            continue;
        }
        CHECK(piece.finish == TABLA_FINISH_LENGTH);
        CHECK(tabla_batch_stats(batch, &stats) == TABLA_OK && stats.tokens == 3 + piece.request);
        CHECK(stats.prompt_tokens == count - piece.request % 2);
        ended++;
    }
    CHECK(tabla_batch_pending(batch, &pending) == TABLA_OK && pending == 0);
    FAILS(tabla_batch_next(batch, &piece), TABLA_ERROR_STATE);
    for (i = 0; i < COUNT; i++) {
        options.max_tokens = 3 + (uint32_t)i;
        CHECK(tabla_session_truncate(session, 0) == TABLA_OK);
        CHECK(tabla_session_prefill(session, tokens, count - i % 2) == TABLA_OK);
        CHECK(tabla_session_begin(session, NULL, &options) == TABLA_OK);
        read_answer(session, expected, sizeof expected, &taken, &finish);
        CHECK(strcmp(expected, texts[i]) == 0);
    }
    /* Cancelled, and freed during an answer. */
    options.max_tokens = UINT32_MAX;
    CHECK(tabla_batch_add(batch, tokens, count, &options, &request) == TABLA_OK);
    CHECK(request == COUNT && tabla_batch_cancel(batch, request) == TABLA_OK);
    CHECK(tabla_batch_cancel(batch, 4711) == TABLA_OK);
    do {
        CHECK(tabla_batch_next(batch, &piece) == TABLA_OK && piece.request == request);
    } while (piece.finish == TABLA_FINISH_NONE);
    CHECK(piece.finish == TABLA_FINISH_CANCELLED && piece.token == TABLA_NO_TOKEN);
    CHECK(tabla_batch_add(batch, tokens, count, &options, &request) == TABLA_OK);
    CHECK(tabla_batch_free(batch) == TABLA_OK);
    FAILS(tabla_batch_next(batch, &piece), TABLA_ERROR_HANDLE);
    CHECK(tabla_session_free(session) == TABLA_OK);
}

static void sessions(TablaModel *model, const char *path) {
    TablaModel *freed = load();
    TablaSession *session = tabla_session_new(freed), *wrong;
    uint32_t tokens[64], token;
    size_t count = encode_prompt(freed, tokens);

    default_session();
    two_sessions(model);
    pieces(model);
    saved(model, path);
    grammars(model);
    scores(model);
    options_of_all_kinds(model);
    batches(model);

    /* Handles have a type, and a session keeps its model alive. */
    FAILS(tabla_session_truncate((TablaSession *)model, 0), TABLA_ERROR_HANDLE);
    CHECK(strstr(tabla_last_error(), "model") != NULL);
    FAILS(reset((TablaModel *)session), TABLA_ERROR_HANDLE);
    wrong = tabla_session_new((TablaModel *)session);
    CHECK(wrong == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    CHECK(tabla_free_model(freed) == TABLA_OK);
    CHECK(tabla_session_prefill(session, tokens, count) == TABLA_OK);
    CHECK(tabla_session_step(session, NULL, &token) == TABLA_OK);
    CHECK(tabla_session_free(session) == TABLA_OK);
    FAILS(tabla_session_free(session), TABLA_ERROR_HANDLE);
    CHECK(tabla_session_new(freed) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
}

/* Every function rejects handles of freed objects. */
static void freed_handles(void) {
    TablaModel *model = load();
    TablaSession *session = tabla_session_new(model);
    TablaBatch *batch = tabla_batch_new(model);
    TablaGrammar *grammar = tabla_grammar_new(model, TABLA_GRAMMAR_REGEX, "a+");

    CHECK(session != NULL && batch != NULL && grammar != NULL);
    CHECK(tabla_session_free(session) == TABLA_OK);
    CHECK(tabla_batch_free(batch) == TABLA_OK);
    CHECK(tabla_grammar_free(grammar) == TABLA_OK);
    CHECK(tabla_free_model(model) == TABLA_OK);
    rejects_session_handle(session);
    rejects_session_handle(batch);
    rejects_session_handle(grammar);
    rejects_handle(model);
}

int main(int argc, char **argv) {
    void (*before[9])(int);
    void (*after[9])(int);
    TablaModel *model;
    if (argc != 3) {
        return 2;
    }
    signals(before);
    model = load();
    conversations(model);
    parsers(model);
    what_templates_lack(model);
    forced_calls(model);
    closed_reasoning(model);
    embeddings();
    classification(argv[2]);
    sessions(model, argv[1]);
    freed_handles();
    signals(after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    CHECK(tabla_free_model(model) == TABLA_OK);
    printf("%d checks passed, %d failed\n", passed, failed);
    return failed != 0;
}
