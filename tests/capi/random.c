/*
 * Random calls from four threads on shared handles: valid ones, freed ones, ones of another type, and
 * numbers that never were handles. Every call must return an allowed code, and at the end every handle
 * can be freed.
 *
 *     random <calls of each thread> <seed>
 *     random <file>...
 *
 * Each byte of a file decides which call is next or which handle it gets, in one thread: inputs of the fuzz
 * target `capi`.
 */
#define _POSIX_C_SOURCE 200809L

#include "tabla.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, MODELS = 2, SESSIONS = 12, GRAMMARS = 3, BATCHES = 2, PARSERS = 3, CODES = 64 };

/* Handles that every thread uses, frees and replaces at any time. */
static _Atomic(void *) models[MODELS], sessions[SESSIONS], grammars[GRAMMARS], batches[BATCHES],
    parsers[PARSERS];

static atomic_ullong seen[CODES], unknown;

struct caller {
    uint64_t state;
    unsigned long calls;
    /* What the input still has; NULL for random numbers. */
    const unsigned char *input, *end;
};

/* xorshift64*: Vigna, arXiv 1402.6246. */
static uint32_t below(struct caller *me, uint32_t end) {
    if (me->input != NULL) {
        uint32_t number = 0, least;
        for (least = 1; least < end && me->input < me->end; least <<= 8) {
            number = number << 8 | *me->input++;
        }
        return number % end;
    }
    me->state ^= me->state >> 12;
    me->state ^= me->state << 25;
    me->state ^= me->state >> 27;
    return (uint32_t)((me->state * 0x2545F4914F6CDD1DULL) >> 33) % end;
}

static void count(int32_t status) {
    if (status >= 0 && status < CODES) {
        atomic_fetch_add(&seen[status], 1);
    } else {
        atomic_fetch_add(&unknown, 1);
    }
}

/* Stores a new handle, and frees the previous one, which may already be freed. */
static void replace(struct caller *me, _Atomic(void *) *slot, void *created,
                TablaStatus (*release)(void *)) {
    void *before;
    count(created == NULL ? tabla_last_error_code() : TABLA_OK);
    if (created == NULL) {
        return;
    }
    before = atomic_exchange(slot, created);
    count(release(before));
    if (below(me, 8) == 0) {
        count(release(before)); /* double free */
    }
}

static TablaStatus free_model(void *model) { return tabla_free_model(model); }
static TablaStatus free_session(void *session) { return tabla_session_free(session); }
static TablaStatus free_grammar(void *grammar) { return tabla_grammar_free(grammar); }
static TablaStatus free_batch(void *batch) { return tabla_batch_free(batch); }
static TablaStatus free_parser(void *parser) { return tabla_parser_free(parser); }

/* Returns mostly a handle of this type, sometimes one of another type or an invalid one. */
static void *any(struct caller *me, _Atomic(void *) *slots, uint32_t slots_count) {
    switch (below(me, 24)) {
    case 0: return NULL;
    case 1: return (void *)(uintptr_t)below(me, 1u << 30);
    case 2: return atomic_load(&models[below(me, MODELS)]);
    case 3: return atomic_load(&sessions[below(me, SESSIONS)]);
    case 4: return atomic_load(&grammars[below(me, GRAMMARS)]);
    case 6: return atomic_load(&batches[below(me, BATCHES)]);
    case 7: return atomic_load(&parsers[below(me, PARSERS)]);
    case 5: return seen; /* no handle */
    default: return atomic_load(&slots[below(me, slots_count)]);
    }
}

/* Returns mostly a session that threads share, sometimes the default session of a model. */
static TablaSession *any_session(struct caller *me, TablaModel *model) {
    TablaSession *session;
    if (below(me, 8) != 0) {
        return any(me, sessions, SESSIONS);
    }
    session = tabla_model_session(model);
    count(session == NULL ? tabla_last_error_code() : TABLA_OK);
    return session;
}

static TablaModel *load(void) {
    TablaLoadOptions options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.device = TABLA_DEVICE_CPU;
    options.threads = 1;
    options.max_context = 64;
    options.sequences = 3;
    return tabla_model_load(NULL, &options);
}

static int32_t on_token(uint32_t token, const char *text, size_t bytes, void *user_data) {
    struct caller *me = user_data;
    TablaSession *session = any_session(me, any(me, models, MODELS));
    (void)token;
    count(text[bytes] == '\0' ? TABLA_OK : -1);
    switch (below(me, 8)) {
    case 0: count(tabla_session_truncate(session, below(me, 8))); break;
    case 1: count(tabla_session_cancel(session)); break;
    case 2: count(tabla_session_free(session)); break;
    case 3: return 1;
    default: break;
    }
    return 0;
}

static TablaGenerateOptions random_options(struct caller *me) {
    TablaGenerateOptions options;
    count(tabla_generate_options_init(&options, sizeof options));
    options.max_tokens = 1 + below(me, 4);
    options.seed = below(me, 1000);
    options.ignore_eos = below(me, 2);
    options.logprobs = (int32_t)below(me, 4) - 1;
    options.speculate = (int32_t)below(me, 2);
    if (below(me, 8) == 0) {
        options.grammar = any(me, grammars, GRAMMARS);
    }
    if (below(me, 32) == 0) {
        options.speculate = TABLA_SPECULATE_DRAFT;
        options.draft_model = any(me, models, MODELS);
    }
    if (below(me, 32) == 0) {
        options.temperature = -1;
    }
    if (below(me, 32) == 0) {
        options.struct_size = below(me, sizeof options); /* truncated at a random byte */
    }
    return options;
}

/* Calls that run the model. */
static void work(struct caller *me, TablaSession *session) {
    TablaGenerateOptions options = random_options(me);
    uint32_t tokens[3], i;
    float row[16];
    size_t written;
    for (i = 0; i < 3; i++) {
        tokens[i] = below(me, 1300);
    }
    switch (below(me, 8)) {
    case 0: count(tabla_session_generate(session, "a", &options, on_token, me, NULL)); break;
    case 1: count(tabla_generate(any(me, models, MODELS), "b", &options, on_token, me, NULL)); break;
    case 2: count(tabla_session_prefill(session, tokens, below(me, 4))); break;
    case 3: count(tabla_session_step(session, &options, tokens)); break;
    case 4: count(tabla_session_score(session, tokens, 3, 1, row, 16, &written)); break;
    case 5: count(tabla_session_logits(session, (int32_t)below(me, 3), row, 16, &written)); break;
    default: count(tabla_session_begin(session, below(me, 2) ? "c" : NULL, &options)); break;
    }
}

static const char MESSAGES[] = "[{\"role\": \"user\", \"content\": \"a\"}]";

/* Creates, uses, finishes and frees parsers that other threads use too. */
static void parse(struct caller *me, const TablaModel *model) {
    static const char *const texts[] = {"<think>", "a</th", "ink>b", "<tool_call>{", ""};
    TablaParser *parser = any(me, parsers, PARSERS);
    TablaChatOptions chat;
    const char *text = texts[below(me, 5)], *parts;
    memset(&chat, 0, sizeof chat);
    chat.struct_size = sizeof chat;
    chat.chat_template = below(me, 8) ? "<think></think><tool_call>" : "no such";
    switch (below(me, 8)) {
    case 0:
        replace(me, &parsers[below(me, PARSERS)], tabla_parser_new(model, &chat, NULL), free_parser);
        break;
    case 2: count(tabla_parser_finish(parser, &parts)); break;
    case 3: count(tabla_parser_free(parser)); break;
    default: count(tabla_parser_push(parser, below(me, 1300), text, strlen(text), &parts)); break;
    }
}

static void converse(struct caller *me, TablaSession *session) {
    TablaGenerateOptions options = random_options(me);
    TablaChatOptions chat;
    memset(&chat, 0, sizeof chat);
    chat.struct_size = sizeof chat;
    chat.chat_template = "{{ messages[0].content }}";
    switch (below(me, 3)) {
    case 0: count(tabla_session_chat(session, MESSAGES, &chat, &options, on_token, me, NULL)); break;
    case 1: count(tabla_session_begin_chat(session, MESSAGES, &chat, &options)); break;
    default: {
        TablaGrammar *created = tabla_grammar_new_tool_call(any(me, models, MODELS), &chat, NULL);
        count(created == NULL ? tabla_last_error_code() : tabla_grammar_free(created));
        break;
    }
    }
}

static void add(struct caller *me, TablaBatch *batch) {
    TablaGenerateOptions options = random_options(me);
    uint32_t token = below(me, 1300);
    size_t request;
    count(tabla_batch_add(batch, &token, below(me, 2), &options, &request));
}

static void one_call(struct caller *me) {
    TablaModel *model = any(me, models, MODELS);
    TablaSession *session = any_session(me, model);
    TablaBatch *batch = any(me, batches, BATCHES);
    uint32_t at = below(me, SESSIONS), tokens[70] = {1};
    TablaModelInfo info;
    TablaStats stats;
    TablaPiece piece;
    size_t written;
    stats.struct_size = sizeof stats;
    piece.struct_size = sizeof piece;
    info.struct_size = sizeof info;
    switch (below(me, 47)) {
    case 44: parse(me, model); break;
    case 45:
        if (below(me, 16) == 0) {
            converse(me, session);
        }
        break;
    case 46: count(tabla_model_stop_token_ids(model, tokens, below(me, 3), &written)); break;
    case 40:
        if (below(me, 4) == 0) {
            replace(me, &batches[below(me, BATCHES)], tabla_batch_new(model), free_batch);
        }
        break;
    case 41: add(me, batch); break;
    case 42: count(tabla_batch_next(batch, &piece)); break;
    case 43: count(tabla_batch_cancel(batch, below(me, 16))); break;
    case 0: replace(me, &sessions[at], tabla_session_fork(session), free_session); break;
    case 1:
    case 2:
    case 24:
    case 25:
    case 26: replace(me, &sessions[at], tabla_session_new(model), free_session); break;
    case 3: count(tabla_session_free(session)); break;
    case 4:
        if (below(me, 64) == 0) {
            replace(me, &models[below(me, MODELS)], load(), free_model);
        }
        break;
    case 5:
        if (below(me, 64) == 0) {
            count(tabla_free_model(model));
        }
        break;
    case 6:
        if (below(me, 16) == 0) {
            TablaGrammar *created =
                tabla_grammar_new(model, (int32_t)below(me, 6), below(me, 2) ? "ab?" : "(");
            replace(me, &grammars[below(me, GRAMMARS)], created, free_grammar);
        }
        break;
    case 7: count(tabla_grammar_free(any(me, grammars, GRAMMARS))); break;
    case 8: count(tabla_session_cancel(session)); break;
    case 9: count(tabla_prefill(model, tokens, below(me, 2))); break;
    case 10: count(tabla_session_stats(session, &stats)); break;
    case 11: count(tabla_session_tokens(session, tokens, below(me, 71), &written)); break;
    case 12: count(tabla_model_tokenize(model, "Once", 4, below(me, 4), tokens, 70, &written)); break;
    case 13: count(tabla_model_info(model, &info)); break;
    case 14:
    case 15: work(me, session); break;
    case 16:
    case 17:
    case 18:
    case 19:
    case 20: count(tabla_session_next(session, &piece)); break;
    case 21:
    case 22: count(tabla_session_end(session)); break;
    case 23: count(tabla_session_truncate(session, 0)); break;
    default: count(tabla_session_truncate(session, below(me, 8))); break;
    }
}

static void *calls(void *argument) {
    struct caller *me = argument;
    unsigned long i;
    for (i = 0; i < me->calls; i++) {
        one_call(me);
    }
    return NULL;
}

/* Frees every handle but the models. */
static void free_others(void) {
    uint32_t i;
    for (i = 0; i < SESSIONS; i++) {
        (void)tabla_session_free(sessions[i]);
        sessions[i] = NULL;
    }
    for (i = 0; i < GRAMMARS; i++) {
        (void)tabla_grammar_free(grammars[i]);
        grammars[i] = NULL;
    }
    for (i = 0; i < BATCHES; i++) {
        (void)tabla_batch_free(batches[i]);
        batches[i] = NULL;
    }
    for (i = 0; i < PARSERS; i++) {
        (void)tabla_parser_free(parsers[i]);
        parsers[i] = NULL;
    }
}

/* Returns the number of codes that no call may return, because they would be errors of the library. */
static unsigned long long bad_codes(void) {
    static const int32_t never[] = {TABLA_ERROR_IO,       TABLA_ERROR_FORMAT, TABLA_ERROR_DEVICE,
                                    TABLA_ERROR_INTERNAL, TABLA_ERROR_PANIC,  TABLA_ERROR_POISONED,
                                    TABLA_ERROR_FORKED,   TABLA_ERROR_MEMORY, TABLA_ERROR_DEVICE_LOST};
    unsigned long long bad = unknown;
    uint32_t i;
    for (i = 0; i < sizeof never / sizeof *never; i++) {
        bad += seen[never[i]];
    }
    return bad;
}

/* Makes the calls of an input. Returns the number of statuses that are errors of the library. Models stay loaded
 * for the next input. */
int random_calls(const unsigned char *input, size_t bytes);
int random_calls(const unsigned char *input, size_t bytes) {
    struct caller me = {0, 0, input, input + bytes};
    uint32_t i;
    for (i = 0; i < MODELS; i++) {
        TablaSession *session = tabla_model_session(models[i]);
        if (session == NULL) {
            models[i] = load();
        } else {
            (void)tabla_session_end(session);
            (void)tabla_session_truncate(session, 0);
        }
    }
    while (me.input != me.end) {
        one_call(&me);
    }
    free_others();
    return (int)bad_codes();
}

/* Makes the calls of files. Returns the exit code. */
static int calls_of_files(char **paths) {
    static unsigned char bytes[1 << 16];
    for (; *paths != NULL; paths++) {
        FILE *file = fopen(*paths, "rb");
        size_t size = file == NULL ? 0 : fread(bytes, 1, sizeof bytes, file);
        if (file == NULL || fclose(file) != 0 || size == 0 || random_calls(bytes, size) != 0) {
            printf("%s\n", *paths);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    unsigned long long total = 0, bad;
    uint32_t i;
    char *end = "";
    if (argc > 1 && (argc != 3 || (strtoul(argv[1], &end, 10), *end != '\0'))) {
        return calls_of_files(argv + 1);
    }
    if (argc != 3) {
        return 2;
    }
    alarm(1500);
    for (i = 0; i < MODELS; i++) {
        models[i] = load();
    }
    for (i = 0; i < THREADS; i++) {
        callers[i].state = strtoull(argv[2], NULL, 10) * 1000 + i + 1;
        callers[i].calls = strtoul(argv[1], NULL, 10);
        callers[i].input = NULL;
        if (pthread_create(&threads[i], NULL, calls, &callers[i]) != 0) {
            return 2;
        }
    }
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    free_others();
    for (i = 0; i < MODELS; i++) {
        (void)tabla_free_model(models[i]);
    }
    bad = bad_codes();
    for (i = 0; i < CODES; i++) {
        total += seen[i];
        if (seen[i] > 0) {
            printf("code %2u: %llu\n", i, (unsigned long long)seen[i]);
        }
    }
    /* The test is only meaningful if these codes occur. */
    bad += seen[TABLA_OK] == 0 || seen[TABLA_ERROR_HANDLE] == 0 || seen[TABLA_ERROR_STATE] == 0;
    printf("%llu calls, %llu bad\n", total, bad);
    return bad != 0;
}
