/*
 * Tests every point of the contract at the top of tabla.h that a program can observe, and the functions
 * of models. Prints the number of passed checks, and a line for each failed one.
 *
 *     smoke <version> <file that is not a model>
 */
#define _POSIX_C_SOURCE 200809L

#include "tabla.h"
#include "tabla.h" /* can be included twice */

#include "prompt.h"
#include "facts.h"
#include "handles.h"
#include "processes.h"
#include "sizes.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

struct stages {
    uint32_t calls;
    float done;
    pthread_t thread;
    int wrong_thread, invalid;
    uint32_t last; /* number of the call that cancels loading */
};

static int32_t stage_ended(uint32_t stage, const char *name, double milliseconds, float done,
                           void *user_data) {
    struct stages *s = user_data;
    s->calls++;
    s->done = done;
    s->wrong_thread += !pthread_equal(s->thread, pthread_self());
    s->invalid += stage != s->calls || name[0] == '\0' || milliseconds < 0;
    return s->calls == s->last;
}

static void loading(const char *version) {
    struct stages seen = {0, 0, pthread_self(), 0, 0, 0};
    TablaLoadOptions options = cpu_options();
    TablaModelInfo info;
    TablaModel *model;

    CHECK(strcmp(tabla_version(), version) == 0);
    CHECK(tabla_abi_version() == TABLA_ABI_VERSION);

    options.progress = stage_ended;
    options.user_data = &seen;
    FAILS(tabla_free_model(NULL), TABLA_ERROR_HANDLE);
    model = tabla_model_load(NULL, &options);
    CHECK(model != NULL);
    /* A successful call does not change the last error. */
    CHECK(tabla_last_error_code() == TABLA_ERROR_HANDLE);
    CHECK(strstr(tabla_last_error(), "NULL") != NULL);
    CHECK(seen.calls == 18 && seen.done == 1.0f);
    CHECK(seen.wrong_thread == 0 && seen.invalid == 0);
    for (seen.last = 1; seen.last <= 18; seen.last++) {
        seen.calls = 0;
        CHECK(tabla_model_load(NULL, &options) == NULL && seen.calls == seen.last);
        CHECK(tabla_last_error_code() == TABLA_ERROR_CANCELLED);
        CHECK(strstr(tabla_last_error(), "stopped") != NULL);
    }
    options.progress = NULL;
    options.samplers = "top_k;temperature";
    options.i2s_layout = "1x4";
    options.gpu_baseline = 1;
    CHECK(tabla_free_model(tabla_model_load(NULL, &options)) == TABLA_OK);
    options.samplers = "top_k;luck";
    CHECK(tabla_model_load(NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "luck") != NULL);
    options.samplers = NULL;
    options.i2s_layout = "2x2";
    CHECK(tabla_model_load(NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    options.i2s_layout = NULL;
    options.load_mode = 3;
    CHECK(tabla_model_load(NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "load_mode") != NULL);

    memset(&info, 0x55, sizeof info);
    info.struct_size = sizeof info;
    CHECK(tabla_model_info(model, &info) == TABLA_OK);
    CHECK(info.struct_size == sizeof info);
    CHECK(info.layers > 0 && info.dim > 0 && info.heads > 0 && info.kv_heads > 0);
    CHECK(info.head_dim > 0 && info.ffn > 0 && info.vocab > 0 && info.parameters > 0);
    CHECK(info.context == 48 && info.context_trained > 0);
    CHECK(info.file_bytes > 0 && info.cache_bytes > 0 && info.scratch_bytes > 0);
    CHECK(info.architecture[0] != '\0' && info.device[0] != '\0');

    /* The struct of an older program with the first four fields. */
    memset(&info, 0x55, sizeof info);
    info.struct_size = 4 * sizeof(uint32_t);
    CHECK(tabla_model_info(model, &info) == TABLA_OK);
    CHECK(info.heads > 0 && info.heads != 0x55555555 && info.kv_heads == 0x55555555);
    info.struct_size = 0;
    FAILS(tabla_model_info(model, &info), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_info(model, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_free_model(model) == TABLA_OK);
}

/* The output projection of the story model is q8_0; its rows are not a multiple of q6_k blocks. */
static void lm_heads(void) {
    TablaLoadOptions options = cpu_options();
    TablaModel *model;
    options.lm_head_type = TABLA_LM_HEAD_Q8_0;
    model = tabla_model_load(NULL, &options);
    CHECK(model != NULL && tabla_free_model(model) == TABLA_OK);
    options.lm_head_type = TABLA_LM_HEAD_Q6_K;
    CHECK(tabla_model_load(NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_UNSUPPORTED);
    CHECK(strstr(tabla_last_error(), "token_embd.weight") != NULL);
    options.lm_head_type = 3;
    CHECK(tabla_model_load(NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
}

static void bad_files(const char *no_model) {
    TablaLoadOptions options = cpu_options();
    CHECK(tabla_model_load(no_model, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_FORMAT);
    CHECK(strstr(tabla_last_error(), "stage 3") != NULL);
    CHECK(tabla_model_load("there/is/no/such.gguf", &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_IO);
    CHECK(tabla_model_load(".", &options) == NULL);
    CHECK(tabla_last_error_code() != TABLA_OK && tabla_last_error()[0] != '\0');
    CHECK(tabla_load_model("there/is/no/such.gguf", 0) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_IO);
}

static void text(TablaModel *model) {
    uint32_t tokens[64];
    char back[256];
    size_t count, bytes, sentinel = 4711;

    CHECK(tabla_model_tokenize(model, PROMPT, strlen(PROMPT), 0, NULL, 0, &count) == TABLA_OK);
    CHECK(count > 0 && count <= 64);
    memset(tokens, 0x55, sizeof tokens);
    FAILS(tabla_model_tokenize(model, PROMPT, strlen(PROMPT), 0, tokens, count - 1, &sentinel),
          TABLA_ERROR_TOO_LARGE);
    CHECK(sentinel == 4711 && tokens[0] == 0x55555555);
    CHECK(tabla_model_tokenize(model, PROMPT, strlen(PROMPT), 0, tokens, 64, &bytes) == TABLA_OK);
    CHECK(bytes == count && tokens[count] == 0x55555555);
    CHECK(tabla_model_tokenize(model, NULL, 0, 0, tokens, 64, &count) == TABLA_OK);

    count = encode_prompt(model, tokens);
    CHECK(tabla_model_detokenize(model, tokens, count, NULL, 0, &bytes) == TABLA_OK);
    CHECK(bytes >= strlen(PROMPT) && bytes < sizeof back);
    CHECK(tabla_model_detokenize(model, tokens, count, back, sizeof back, &bytes) == TABLA_OK);
    back[bytes] = '\0';
    CHECK(strstr(back, PROMPT) != NULL);
    FAILS(tabla_model_detokenize(model, tokens, count, back, 1, &sentinel), TABLA_ERROR_TOO_LARGE);

    FAILS(tabla_model_tokenize(model, "\xff\xfe", 2, 0, tokens, 64, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_tokenize(model, NULL, 5, 0, tokens, 64, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_tokenize(model, PROMPT, (size_t)-1, 0, tokens, 64, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_tokenize(model, PROMPT, 4, 1u << 31, tokens, 64, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_tokenize(model, PROMPT, 4, 0, tokens, 64, NULL), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_detokenize(model, NULL, 3, back, sizeof back, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_detokenize(model, tokens, (size_t)-1 / 4, back, sizeof back, &sentinel),
          TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_detokenize(model, tokens, count, back, sizeof back, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(sentinel == 4711);
}

static const char CHAT[] = "[{\"role\": \"user\", \"content\": \"Hi </s> <s>\"}]";

static void chat(TablaModel *model) {
    struct {
        TablaChatOptions known;
        char newer[8];
    } grown;
    TablaChatOptions options;
    uint32_t tokens[256], plain[256];
    char text[512];
    size_t count = 0, bytes = 0, others = 0, sentinel = 4711;

    /* The story model has no template, and no special tokens that identify one. */
    FAILS(tabla_model_apply_chat_template(model, CHAT, NULL, text, sizeof text, &sentinel),
          TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "chatml") != NULL);
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.chat_template = "vicuna";
    CHECK(tabla_model_apply_chat_template(model, CHAT, &options, NULL, 0, &count) == TABLA_OK);
    CHECK(tabla_model_apply_chat_template(model, CHAT, &options, text, sizeof text - 1, &bytes) ==
          TABLA_OK);
    CHECK(bytes == count && bytes < sizeof text);
    text[bytes] = '\0';
    CHECK(strstr(text, "USER: Hi </s> <s>\nASSISTANT:") != NULL);
    FAILS(tabla_model_apply_chat_template(model, CHAT, &options, text, 3, &sentinel),
          TABLA_ERROR_TOO_LARGE);
    CHECK(tabla_model_tokenize_chat(model, CHAT, &options, tokens, 256, &count) == TABLA_OK);
    CHECK(count > 0 && count <= 256);

    /* Names of special tokens in a message are encoded as text. */
    options.chat_template = "{{ messages[0].content }}";
    CHECK(tabla_model_tokenize_chat(model, CHAT, &options, tokens, 256, &count) == TABLA_OK);
    CHECK(tabla_model_tokenize(model, "Hi </s> <s>", 11, 0, plain, 256, &others) == TABLA_OK);
    CHECK(count == others && memcmp(tokens, plain, count * sizeof *tokens) == 0);

    options.chat_template = "{{ tools | length }}{{ documents[0].title }}{{ x }}"
                            "{{ add_generation_prompt }}{# <tool_call> #}";
    options.tools = "[{}, {}]";
    options.documents = "[{\"title\": \"T\"}]";
    options.chat_template_kwargs = "{\"x\": 7}";
    options.no_generation_prompt = 1;
    CHECK(tabla_model_apply_chat_template(model, "[]", &options, text, sizeof text, &bytes) == TABLA_OK);
    CHECK(bytes == 8 && memcmp(text, "2T7False", 8) == 0);
    options.chat_template_kwargs = "{\"messages\": 7}";
    FAILS(tabla_model_apply_chat_template(model, "[]", &options, text, sizeof text, &sentinel),
          TABLA_ERROR_ARGUMENT);
    options.chat_template_kwargs = NULL;
    options.tools = "{}";
    FAILS(tabla_model_apply_chat_template(model, "[]", &options, text, sizeof text, &sentinel),
          TABLA_ERROR_ARGUMENT);
    options.tools = NULL;
    options.chat_template = "{{ raise_exception('not this one') }}";
    FAILS(tabla_model_tokenize_chat(model, "[]", &options, tokens, 256, &sentinel), TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "not this one") != NULL);
    options.chat_template = "{% if %}";
    FAILS(tabla_model_tokenize_chat(model, "[]", &options, tokens, 256, &sentinel), TABLA_ERROR_FORMAT);
    options.chat_template = "{{ 'a' * 100000000 }}";
    FAILS(tabla_model_tokenize_chat(model, "[]", &options, tokens, 256, &sentinel), TABLA_ERROR_TOO_LARGE);
    options.chat_template = "\xff";
    FAILS(tabla_model_tokenize_chat(model, "[]", &options, tokens, 256, &sentinel), TABLA_ERROR_ARGUMENT);
    options.chat_template = "chatml";
    FAILS(tabla_model_tokenize_chat(model, "[", &options, tokens, 256, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_tokenize_chat(model, "7", &options, tokens, 256, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_tokenize_chat(model, NULL, &options, tokens, 256, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_model_tokenize_chat(model, "[]", &options, tokens, 256, NULL), TABLA_ERROR_ARGUMENT);
    memset(&grown, 0, sizeof grown);
    grown.known.struct_size = sizeof grown;
    grown.known.chat_template = "chatml";
    CHECK(tabla_model_tokenize_chat(model, CHAT, &grown.known, NULL, 0, &count) == TABLA_OK);
    grown.newer[7] = 1;
    FAILS(tabla_model_tokenize_chat(model, CHAT, &grown.known, NULL, 0, &sentinel), TABLA_ERROR_ARGUMENT);
    CHECK(sentinel == 4711);
}

static uint32_t argmax(const float *row, size_t count) {
    size_t best = 0, i;
    for (i = 1; i < count; i++) {
        if (row[i] > row[best]) {
            best = i;
        }
    }
    return (uint32_t)best;
}

static void numbers(TablaModel *model) {
    TablaSession *session = tabla_model_session(model);
    TablaGenerateOptions options = greedy(UINT32_MAX);
    TablaModelInfo info;
    uint32_t tokens[64], token = 77, again;
    size_t count, vocab = 0, all = 0, sentinel = 4711, i;
    float *last, *rows;
    double difference = 0, largest = 0;

    info.struct_size = sizeof info;
    CHECK(tabla_model_info(model, &info) == TABLA_OK);
    FAILS(tabla_session_step(session, &options, &token), TABLA_ERROR_STATE);
    FAILS(tabla_generate(model, NULL, &options, NULL, NULL, NULL), TABLA_ERROR_STATE);
    CHECK(token == 77);

    count = encode_prompt(model, tokens);
    again = info.vocab;
    FAILS(tabla_prefill(model, &again, 1), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_prefill(model, NULL, 1), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_prefill(model, tokens, (size_t)-1), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_prefill(model, tokens, count) == TABLA_OK);

    CHECK(tabla_session_logits(session, TABLA_LOGITS_LAST, NULL, 0, &vocab) == TABLA_OK);
    CHECK(tabla_session_logits(session, TABLA_LOGITS_ALL, NULL, 0, &all) == TABLA_OK);
    CHECK(vocab == info.vocab && all == count * vocab);
    last = malloc(vocab * sizeof *last);
    rows = malloc(all * sizeof *rows);
    if (last == NULL || rows == NULL) {
        exit(1);
    }
    FAILS(tabla_session_logits(session, TABLA_LOGITS_LAST, last, vocab - 1, &sentinel),
          TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_session_logits(session, 7, last, vocab, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_logits(session, TABLA_LOGITS_LAST, last, vocab, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(sentinel == 4711);
    CHECK(tabla_session_logits(session, TABLA_LOGITS_LAST, last, vocab, &vocab) == TABLA_OK);
    CHECK(tabla_session_logits(session, TABLA_LOGITS_ALL, rows, all, &all) == TABLA_OK);
    for (i = 0; i < vocab; i++) {
        double a = last[i], b = rows[all - vocab + i];
        difference = fmax(difference, fabs(a - b));
        largest = fmax(largest, fabs(a));
    }
    CHECK(isfinite(largest) && largest > 0 && difference <= 1e-4 * largest);

    FAILS(tabla_session_step(session, &options, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_session_step(session, &options, &token) == TABLA_OK);
    CHECK(token == argmax(last, vocab));
    CHECK(reset(model) == TABLA_OK);
    CHECK(tabla_session_logits(session, TABLA_LOGITS_ALL, NULL, 0, &all) == TABLA_OK && all == 0);
    FAILS(tabla_session_logits(session, TABLA_LOGITS_LAST, last, vocab, &sentinel), TABLA_ERROR_STATE);
    CHECK(tabla_prefill(model, tokens, count) == TABLA_OK);
    CHECK(tabla_session_step(session, &options, &again) == TABLA_OK);
    CHECK(again == token);
    CHECK(tabla_session_step(session, NULL, &again) == TABLA_OK);
    CHECK(again < vocab);
    free(last);
    free(rows);
    CHECK(reset(model) == TABLA_OK);
}

enum action { NONE, STOP, CALL, CANCEL_ON_THREAD, FREE_ON_THREAD, FREE_IN_CALLBACK };

struct listener {
    TablaModel *model;
    enum action action;
    pthread_t thread;
    uint32_t calls;
    size_t bytes;
    int wrong_thread, unterminated;
};

static void *cancel_on_thread(void *model) {
    FAILS(reset(model), TABLA_ERROR_BUSY); /* returns at once */
    CHECK(tabla_session_cancel(tabla_model_session(model)) == TABLA_OK);
    return NULL;
}

static void *free_on_thread(void *model) {
    CHECK(tabla_free_model(model) == TABLA_OK);
    FAILS(tabla_free_model(model), TABLA_ERROR_HANDLE);
    return NULL;
}

/* Runs a function on another thread and waits for it. */
static void run_on_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static int32_t on_token(uint32_t token, const char *piece, size_t bytes, void *user_data) {
    struct listener *me = user_data;
    (void)token;
    me->calls++;
    me->bytes += bytes;
    me->wrong_thread += !pthread_equal(me->thread, pthread_self());
    me->unterminated += piece[bytes] != '\0';
    if (me->calls != 1) {
        return me->action == STOP && me->calls == 3;
    }
    switch (me->action) {
    case CALL: {
        size_t count = 4711;
        FAILS(reset(me->model), TABLA_ERROR_REENTRANT);
        FAILS(tabla_prefill(me->model, &token, 1), TABLA_ERROR_REENTRANT);
        CHECK(tabla_model_tokenize(me->model, "a", 1, 0, NULL, 0, &count) == TABLA_OK && count == 1);
        FAILS(tabla_generate(me->model, "a", NULL, NULL, NULL, NULL), TABLA_ERROR_REENTRANT);
        break;
    }
    case CANCEL_ON_THREAD:
        run_on_thread(cancel_on_thread, me->model);
        break;
    case FREE_ON_THREAD:
        run_on_thread(free_on_thread, me->model);
        break;
    case FREE_IN_CALLBACK:
        CHECK(tabla_free_model(me->model) == TABLA_OK);
        break;
    default:
        break;
    }
    return 0;
}

static void generating(TablaModel *model, enum action action) {
    TablaGenerateOptions options = greedy(8);
    struct listener me = {NULL, NONE, pthread_self(), 0, 0, 0, 0};
    TablaStats stats, untouched;
    int freed = action == FREE_ON_THREAD || action == FREE_IN_CALLBACK;

    me.model = model;
    me.action = action;
    memset(&stats, 0x55, sizeof stats);
    FAILS(tabla_generate(model, PROMPT, &options, on_token, &me, &stats), TABLA_ERROR_ARGUMENT);
    stats.struct_size = sizeof stats;
    untouched = stats;
    options.temperature = -1;
    FAILS(tabla_generate(model, PROMPT, &options, on_token, &me, &stats), TABLA_ERROR_ARGUMENT);
    CHECK(memcmp(&stats, &untouched, sizeof stats) == 0 && me.calls == 0);
    options.temperature = 0;

    CHECK(tabla_generate(model, PROMPT, &options, on_token, &me, &stats) == TABLA_OK);
    CHECK(stats.prompt_tokens > 0 && stats.prompt_ms >= 0 && stats.predicted_ms >= 0);
    CHECK(me.wrong_thread == 0 && me.unterminated == 0);
    switch (action) {
    case NONE:
    case CALL:
        CHECK(stats.finish == TABLA_FINISH_LENGTH);
        CHECK(stats.tokens == 8 && me.calls >= 8 && me.bytes > 0);
        break;
    case STOP:
        CHECK(stats.finish == TABLA_FINISH_CALLBACK && me.calls == 3 && stats.tokens == 3);
        break;
    default:
        /* The callback receives no further token. */
        CHECK(stats.finish == TABLA_FINISH_CANCELLED && stats.tokens == 1 && me.calls == 1);
    }
    if (freed) {
        FAILS(reset(model), TABLA_ERROR_HANDLE);
        return;
    }
    if (action == CALL) {
        /* Without tokens, only the prompt is computed. */
        options.max_tokens = 0;
        CHECK(tabla_generate(model, " a", &options, NULL, NULL, &stats) == TABLA_OK);
        CHECK(stats.finish == TABLA_FINISH_LENGTH && stats.tokens == 0 && stats.prompt_tokens > 0);
        /* Continues without a callback until the context is full. */
        options.max_tokens = UINT32_MAX;
        CHECK(tabla_generate(model, NULL, &options, NULL, NULL, &stats) == TABLA_OK);
        CHECK(stats.finish == TABLA_FINISH_CONTEXT && stats.prompt_tokens == 0);
        FAILS(tabla_session_step(tabla_model_session(model), &options, &me.calls), TABLA_ERROR_STATE);
    }
    CHECK(reset(model) == TABLA_OK);
}

static void handles(TablaModel *second) {
    int local = 0;
    void *memory = malloc(64);
    TablaModel *first = load();
    TablaModel *third;

    CHECK(first != second);
    rejects_handle(NULL);
    rejects_handle((TablaModel *)(void *)&local);
    rejects_handle((TablaModel *)memory);
    rejects_handle((TablaModel *)(uintptr_t)1000001);
    rejects_handle((TablaModel *)(uintptr_t)-1);
    CHECK(tabla_free_model(first) == TABLA_OK);
    rejects_handle(first);
    third = load(); /* reuses the entry of the first */
    CHECK(third != first && third != second);
    rejects_handle(first);
    CHECK(reset(second) == TABLA_OK && reset(third) == TABLA_OK);
    CHECK(tabla_last_error_code() == TABLA_ERROR_HANDLE);
    CHECK(tabla_free_model(third) == TABLA_OK);
    free(memory);
}

struct log {
    int lines, bad;
};

static void log_line(int32_t level, const char *message, void *user_data) {
    struct log *log = user_data;
    log->lines++;
    log->bad += level < TABLA_LOG_ERROR || level > TABLA_LOG_DEBUG || message[0] == '\0';
    log->bad += tabla_log_set_callback(TABLA_LOG_OFF, NULL, NULL) != TABLA_ERROR_REENTRANT;
}

/* Loading logs its stages to the callback, if the level includes them. */
static void logs(void) {
    struct log log = {0, 0};
    int lines;
    FAILS(tabla_log_set_callback(9, log_line, &log), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_log_set_callback(TABLA_LOG_DEBUG, log_line, &log) == TABLA_OK);
    CHECK(tabla_free_model(load()) == TABLA_OK);
    CHECK(log.lines >= 18 && log.bad == 0);
    lines = log.lines;
    CHECK(tabla_log_set_callback(TABLA_LOG_WARN, log_line, &log) == TABLA_OK);
    CHECK(tabla_free_model(load()) == TABLA_OK);
    CHECK(tabla_log_set_callback(TABLA_LOG_DEBUG, NULL, &log) == TABLA_OK);
    CHECK(tabla_free_model(load()) == TABLA_OK);
    CHECK(log.lines == lines);
}

static void *other_error(void *nothing) {
    (void)nothing;
    CHECK(tabla_last_error_code() == TABLA_OK);
    CHECK(tabla_last_error()[0] == '\0');
    FAILS(tabla_generate_options_init(NULL, 0), TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "options") != NULL);
    return NULL;
}

static void threads(void) {
    const char *text;
    FAILS(reset(NULL), TABLA_ERROR_HANDLE);
    text = tabla_last_error();
    run_on_thread(other_error, NULL);
    CHECK(text == tabla_last_error() && strstr(text, "NULL") != NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_HANDLE);
}

static int released;

static void release(void *user_data) {
    __atomic_add_fetch((int *)user_data, 1, __ATOMIC_SEQ_CST);
}

/* A model in memory, at an odd address, is the same as that of the file, which is the built-in one. */
static void from_memory(const char *path) {
    TablaLoadOptions options = cpu_options();
    TablaModel *built_in = load(), *model;
    uint8_t digests[2][32];
    unsigned char *data;
    long size;
    int seconds;
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    size = ftell(file);
    data = malloc((size_t)size + 1);
    CHECK(fseek(file, 0, SEEK_SET) == 0);
    CHECK(fread(data + 1, 1, (size_t)size, file) == (size_t)size);
    fclose(file);

    model = tabla_load_memory(data + 1, (size_t)size, release, &released, &options);
    CHECK(tabla_model_digest(built_in, digests[0]) == TABLA_OK);
    CHECK(tabla_model_digest(model, digests[1]) == TABLA_OK);
    CHECK(memcmp(digests[0], digests[1], sizeof digests[0]) == 0);
    generating(model, NONE);
    CHECK(__atomic_load_n(&released, __ATOMIC_SEQ_CST) == 0);
    CHECK(tabla_free_model(model) == TABLA_OK);
    for (seconds = 0; seconds < 60 && __atomic_load_n(&released, __ATOMIC_SEQ_CST) == 0; seconds++) {
        sleep(1);
    }
    CHECK(__atomic_load_n(&released, __ATOMIC_SEQ_CST) == 1);

    /* Without a function the data is copied. */
    model = tabla_load_memory(data + 1, (size_t)size, NULL, NULL, &options);
    memset(data, 0, (size_t)size + 1);
    generating(model, NONE);
    CHECK(tabla_free_model(model) == TABLA_OK);

    /* A load that fails releases the data, also that of a NULL pointer. */
    CHECK(tabla_load_memory(data, (size_t)size, release, &released, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_FORMAT);
    CHECK(strstr(tabla_last_error(), "the model in memory") != NULL);
    CHECK(tabla_load_memory(NULL, 5, release, &released, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_load_memory(data, 0, release, &released, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_FORMAT);
    CHECK(tabla_load_memory(data, SIZE_MAX, release, &released, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(__atomic_load_n(&released, __ATOMIC_SEQ_CST) == 5);
    CHECK(tabla_load_memory(data, SIZE_MAX / 4, NULL, NULL, &options) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_MEMORY);
    free(data);
    CHECK(tabla_free_model(built_in) == TABLA_OK);
}

int main(int argc, char **argv) {
    void (*before[9])(int);
    void (*after[9])(int);
    TablaModel *model;
    if (argc != 4) {
        return 2;
    }
    signals(before);
    threads(); /* before a model is loaded */
    loading(argv[1]);
    lm_heads();
    bad_files(argv[2]);
    from_memory(argv[3]);
    sizes();
    model = load();
    text(model);
    chat(model);
    status_names();
    facts(model);
    numbers(model);
    logs();
    generating(model, NONE);
    generating(model, STOP);
    generating(model, CALL);
    generating(model, CANCEL_ON_THREAD);
    generating(load(), FREE_ON_THREAD);
    generating(load(), FREE_IN_CALLBACK);
    handles(model);
    threads();
    forking(model);
    signals(after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    CHECK(tabla_catch_file_faults() == FAULTS_ARE_CAUGHT);
    CHECK(tabla_catch_file_faults() == FAULTS_ARE_CAUGHT);
    CHECK(tabla_free_model(model) == TABLA_OK);
    printf("%d checks passed, %d failed\n", passed, failed);
    return failed != 0;
}
