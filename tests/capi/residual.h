/*
 * Helpers of hooks.c: a prompt of the built-in model, its residual stream and its logits with hooks.
 */
#ifndef RESIDUAL_H
#define RESIDUAL_H

#include "check.h"

#include <math.h>

static const char PROMPT[] = "Once upon a time";

/* The residual stream before the first layer and after every layer. */
static const char *const RESIDUAL[2] = {"token_embd", "blk.*"};

/* The built-in model, a session of it, and the tokens of a prompt. */
struct story {
    TablaModel *model;
    TablaSession *session;
    uint32_t tokens[64];
    size_t count, layers, dim, vocab;
};

static float *allocate(size_t count) {
    float *numbers = calloc(count, sizeof *numbers);
    if (numbers == NULL) {
        exit(1);
    }
    return numbers;
}

/* Returns the largest difference, or infinity if a number is NaN. */
static float difference(const float *one, const float *two, size_t count) {
    float largest = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        float between = fabsf(one[i] - two[i]);
        if (isnan(between)) {
            return INFINITY;
        }
        largest = fmaxf(largest, between);
    }
    return largest;
}

static TablaHookOptions hook_options(void) {
    TablaHookOptions options;
    CHECK(tabla_hook_options_init(&options, sizeof options) == TABLA_OK);
    return options;
}

/* An edit of all columns and positions. */
static TablaEdit edit_of(const char *point, int32_t action, const float *vector, size_t count, float factor) {
    TablaEdit edit;
    memset(&edit, 0, sizeof edit);
    edit.point = point;
    edit.action = action;
    edit.vector = vector;
    edit.vector_count = count;
    edit.factor = factor;
    return edit;
}

static TablaSteer steer_of(const TablaControlVector *vector, float scale) {
    TablaSteer steer;
    memset(&steer, 0, sizeof steer);
    steer.vector = vector;
    steer.scale = scale;
    return steer;
}

static struct story load_story(void) {
    TablaLoadOptions options = cpu_options();
    TablaModelInfo info;
    struct story story;
    memset(&story, 0, sizeof story);
    options.max_context = 128;
    story.model = tabla_model_load(NULL, &options);
    story.session = tabla_session_new(story.model);
    CHECK(story.model != NULL && story.session != NULL);
    info.struct_size = sizeof info;
    if (tabla_model_info(story.model, &info) != TABLA_OK) {
        exit(1);
    }
    story.layers = info.layers;
    story.dim = info.dim;
    story.vocab = info.vocab;
    CHECK(tabla_model_tokenize(story.model, PROMPT, strlen(PROMPT), TABLA_TOKENIZE_ADD_SPECIAL,
                               story.tokens, 64, &story.count) == TABLA_OK);
    CHECK(story.count > 3 && story.count < 32 && story.layers > 4);
    return story;
}

/* Number of values of the residual stream of the prompt. */
static size_t residual_count(const struct story *story) {
    return story->count * (story->layers + 1) * story->dim;
}

/* The row of a position in the residual stream: after `layers` layers. */
static const float *row_of(const struct story *story, const float *residual, size_t position, size_t layers) {
    return residual + (position * (story->layers + 1) + layers) * story->dim;
}

/* Captures the residual stream of the prompt with other options. Free it. */
static float *residual_with(const struct story *story, TablaHookOptions options) {
    size_t numbers = residual_count(story), rows = 0, width = 0;
    float *values = allocate(numbers);
    TablaHooks *hooks;
    options.capture = RESIDUAL;
    options.capture_count = 2;
    hooks = tabla_hooks_new(story->model, &options);
    CHECK(hooks != NULL);
    CHECK(tabla_session_set_hooks(story->session, hooks) == TABLA_OK);
    CHECK(tabla_session_capture(story->session, story->tokens, story->count) == TABLA_OK);
    CHECK(tabla_session_captured(story->session, NULL, 0, values, numbers, &rows, &width) == TABLA_OK);
    CHECK(rows == story->count && rows * width == numbers);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK);
    return values;
}

/* Returns the logits of a session after every token. Free them. */
static float *all_logits(TablaSession *session, const uint32_t *tokens, size_t count, size_t vocab) {
    size_t written = 0;
    float *logits = allocate(count * vocab);
    CHECK(tabla_session_truncate(session, 0) == TABLA_OK);
    CHECK(tabla_session_prefill(session, tokens, count) == TABLA_OK);
    CHECK(tabla_session_logits(session, TABLA_LOGITS_ALL, logits, count * vocab, &written) == TABLA_OK);
    CHECK(written == count * vocab);
    return logits;
}

#endif
