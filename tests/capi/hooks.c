/*
 * Tests of hooks, LoRA adapters and control vectors. Prints the number of passed checks, and a line for
 * each failed one.
 *
 *     hooks <folder to write> <model> <adapter of the model>
 */
#include "residual.h"
#include "adapters.h"

#include <stddef.h>

/* Offsets with 64-bit pointers, which must not change without TABLA_ABI_VERSION. */
static void layout(void) {
    if (sizeof(void *) != 8) {
        return;
    }
    CHECK(sizeof(TablaEdit) == 48);
    CHECK(offsetof(TablaEdit, vector_count) == 16);
    CHECK(offsetof(TablaEdit, action) == 24);
    CHECK(offsetof(TablaEdit, first_column) == 32);
    CHECK(offsetof(TablaEdit, position_count) == 44);
    CHECK(sizeof(TablaSteer) == 24);
    CHECK(offsetof(TablaSteer, scale) == 8);
    CHECK(offsetof(TablaSteer, layer_count) == 16);
    CHECK(sizeof(TablaHookOptions) == 96);
    CHECK(offsetof(TablaHookOptions, positions) == 4);
    CHECK(offsetof(TablaHookOptions, capture) == 8);
    CHECK(offsetof(TablaHookOptions, position_list) == 24);
    CHECK(offsetof(TablaHookOptions, edits) == 40);
    CHECK(offsetof(TablaHookOptions, adapters) == 56);
    CHECK(offsetof(TablaHookOptions, steers) == 72);
    CHECK(offsetof(TablaHookOptions, attention_positions) == 88);
    CHECK(sizeof(TablaCapturedPoint) == 24);
    CHECK(offsetof(TablaCapturedPoint, cols) == 8);
    CHECK(offsetof(TablaCapturedPoint, name) == 16);
}

static void defaults(void) {
    TablaHookOptions options;
    memset(&options, 0x55, sizeof options);
    CHECK(tabla_hook_options_init(&options, sizeof options) == TABLA_OK);
    CHECK(options.struct_size == sizeof options && options.positions == TABLA_POSITIONS_ALL);
    CHECK(options.capture == NULL && options.capture_count == 0 && options.position_list_count == 0);
    CHECK(options.edit_count == 0 && options.adapter_count == 0 && options.steer_count == 0);
    CHECK(options.attention_positions == 0);
    FAILS(tabla_hook_options_init(NULL, sizeof options), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_hook_options_init(&options, 3), TABLA_ERROR_ARGUMENT);
}

static void points(const struct story *story) {
    TablaHookOptions options = hook_options();
    TablaCapturedPoint point;
    TablaHooks *hooks;
    size_t count = 0, sentinel = 4711, i;
    options.capture = RESIDUAL;
    options.capture_count = 2;
    hooks = tabla_hooks_new(story->model, &options);
    CHECK(hooks != NULL);
    CHECK(tabla_hooks_point(hooks, 0, NULL, &count) == TABLA_OK && count == story->layers + 1);
    for (i = 0; i < count; i++) {
        char name[32] = "token_embd";
        if (i > 0) {
            snprintf(name, sizeof name, "blk.%u", (unsigned)i - 1);
        }
        memset(&point, 0x55, sizeof point);
        point.struct_size = sizeof point;
        CHECK(tabla_hooks_point(hooks, i, &point, &count) == TABLA_OK && count == story->layers + 1);
        CHECK(point.struct_size == sizeof point && strcmp(point.name, name) == 0);
        CHECK(point.offset == i * story->dim && point.cols == story->dim);
    }
    /* The struct of an older program with the first two fields. */
    memset(&point, 0x55, sizeof point);
    point.struct_size = 8;
    CHECK(tabla_hooks_point(hooks, 1, &point, &count) == TABLA_OK);
    CHECK(point.offset == story->dim && point.cols == 0x55555555);
    point.struct_size = 0;
    FAILS(tabla_hooks_point(hooks, 0, &point, &sentinel), TABLA_ERROR_ARGUMENT);
    point.struct_size = sizeof point;
    FAILS(tabla_hooks_point(hooks, story->layers + 1, &point, &sentinel), TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "out of range") != NULL);
    FAILS(tabla_hooks_point(hooks, 0, &point, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(sentinel == 4711);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK);

    /* Hooks that capture nothing. */
    hooks = tabla_hooks_new(story->model, NULL);
    CHECK(hooks != NULL);
    CHECK(tabla_hooks_point(hooks, 0, NULL, &count) == TABLA_OK && count == 0);
    CHECK(tabla_session_set_hooks(story->session, hooks) == TABLA_OK);
    FAILS(tabla_session_capture(story->session, story->tokens, story->count), TABLA_ERROR_STATE);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK);
}

static void captures(const struct story *story) {
    TablaHookOptions options = hook_options();
    TablaSession *session = tabla_session_new(story->model), *fork;
    TablaHooks *hooks;
    uint32_t positions[64];
    size_t numbers = residual_count(story), rows = 4711, width = 4711, i;
    float *values = allocate(numbers), *again = allocate(numbers);

    options.capture = RESIDUAL;
    options.capture_count = 2;
    hooks = tabla_hooks_new(story->model, &options);
    CHECK(hooks != NULL && session != NULL);
    CHECK(tabla_session_prefill(session, story->tokens, story->count) == TABLA_OK);
    FAILS(tabla_session_captured(session, NULL, 0, NULL, 0, &rows, &width), TABLA_ERROR_STATE);
    /* The tokens in the sequence are computed again. */
    CHECK(tabla_session_set_hooks(session, hooks) == TABLA_OK);
    memset(positions, 0x55, sizeof positions);
    FAILS(tabla_session_captured(session, positions, story->count - 1, NULL, 0, &rows, &width),
          TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_session_captured(session, positions, 64, values, numbers - 1, &rows, &width),
          TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_session_captured(session, positions, 64, values, numbers, NULL, &width), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_captured(session, positions, 64, values, numbers, &rows, NULL), TABLA_ERROR_ARGUMENT);
    /* Results are written only on success. */
    CHECK(rows == 4711 && width == 4711 && positions[0] == 0x55555555);
    CHECK(tabla_session_captured(session, NULL, 0, NULL, 0, &rows, &width) == TABLA_OK);
    CHECK(rows == story->count && width == (story->layers + 1) * story->dim);
    CHECK(tabla_session_captured(session, positions, 64, values, numbers, &rows, &width) == TABLA_OK);
    for (i = 0; i < rows; i++) {
        CHECK(positions[i] == i);
    }
    CHECK(positions[rows] == 0x55555555);
    CHECK(isfinite(difference(values, again, numbers)) && difference(values, again, numbers) > 0);

    /* Rows follow the sequence, and a fork has its own. */
    fork = tabla_session_fork(session);
    CHECK(tabla_session_truncate(session, 2) == TABLA_OK);
    CHECK(tabla_session_captured(session, positions, 64, NULL, 0, &rows, &width) == TABLA_OK && rows == 2);
    CHECK(tabla_session_prefill(session, story->tokens + 2, story->count - 2) == TABLA_OK);
    CHECK(tabla_session_captured(session, NULL, 0, again, numbers, &rows, &width) == TABLA_OK);
    CHECK(rows == story->count && difference(values, again, numbers) < 1e-3f);
    CHECK(tabla_session_captured(fork, NULL, 0, again, numbers, &rows, &width) == TABLA_OK);
    CHECK(rows == story->count && difference(values, again, numbers) < 1e-3f);
    FAILS(tabla_session_capture(fork, story->tokens, 0), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_capture(fork, NULL, 1), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_session_free(fork) == TABLA_OK);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK && tabla_session_free(session) == TABLA_OK);
    free(values);
    free(again);
}

static void positions(const struct story *story) {
    const uint32_t list[3] = {0, 2, 90};
    TablaHookOptions options = hook_options();
    TablaSession *session = story->session;
    TablaHooks *hooks;
    uint32_t found[64];
    size_t row = (story->layers + 1) * story->dim, rows = 0, width = 0;
    float *all = residual_with(story, options), *values = allocate(2 * row);

    options.capture = RESIDUAL;
    options.capture_count = 2;
    options.positions = TABLA_POSITIONS_LAST;
    hooks = tabla_hooks_new(story->model, &options);
    CHECK(tabla_session_set_hooks(session, hooks) == TABLA_OK);
    CHECK(tabla_session_capture(session, story->tokens, story->count) == TABLA_OK);
    CHECK(tabla_session_captured(session, found, 64, values, row, &rows, &width) == TABLA_OK);
    CHECK(rows == 1 && found[0] == story->count - 1);
    CHECK(difference(values, row_of(story, all, story->count - 1, 0), row) < 1e-3f);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK);

    options.positions = TABLA_POSITIONS_LIST;
    options.position_list = list;
    options.position_list_count = 3;
    hooks = tabla_hooks_new(story->model, &options);
    CHECK(tabla_session_set_hooks(session, hooks) == TABLA_OK);
    CHECK(tabla_session_capture(session, story->tokens, story->count) == TABLA_OK);
    CHECK(tabla_session_captured(session, found, 64, values, 2 * row, &rows, &width) == TABLA_OK);
    CHECK(rows == 2 && found[0] == 0 && found[1] == 2);
    CHECK(difference(values, row_of(story, all, 0, 0), row) < 1e-3f);
    CHECK(difference(values + row, row_of(story, all, 2, 0), row) < 1e-3f);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK);
    free(all);
    free(values);
}

/* Every kind of edit, at points of their own. */
static void edits(const struct story *story) {
    const float two[2] = {7, -7};
    TablaHookOptions options = hook_options();
    TablaEdit edits[5];
    size_t dim = story->dim, i, k;
    float *vector = allocate(2 * dim), *plain = residual_with(story, options), *edited;

    for (i = 0; i < 2 * dim; i++) {
        vector[i] = sinf((float)i);
    }
    edits[0] = edit_of("token_embd", TABLA_EDIT_ADD, vector, dim, 0.5f);
    edits[1] = edit_of("blk.0", TABLA_EDIT_SET, two, 2, 0);
    edits[1].first_column = 2;
    edits[1].column_count = 2;
    edits[1].first_position = 1;
    edits[1].position_count = 1;
    edits[2] = edit_of("blk.1", TABLA_EDIT_SET, vector, 2 * dim, 0);
    edits[2].first_position = 1;
    edits[2].position_count = 2;
    edits[3] = edit_of("blk.2", TABLA_EDIT_PROJECT_OUT, vector, dim, 1);
    edits[4] = edit_of("blk.3", TABLA_EDIT_SCALE, NULL, 0, 0);
    edits[4].column_count = 5;
    options.edits = edits;
    options.edit_count = 5;
    edited = residual_with(story, options);
    for (i = 0; i < story->count; i++) {
        const float *before = row_of(story, plain, i, 0), *after = row_of(story, edited, i, 0);
        double product = 0;
        for (k = 0; k < dim; k++) {
            CHECK(fabsf(after[k] - before[k] - 0.5f * vector[k]) < 1e-4f);
        }
        after = row_of(story, edited, i, 1);
        CHECK((after[2] == two[0] && after[3] == two[1]) == (i == 1));
        after = row_of(story, edited, i, 2);
        if (i == 1 || i == 2) {
            CHECK(difference(after, vector + (i - 1) * dim, dim) == 0);
        } else {
            CHECK(difference(after, vector, dim) > 0 && difference(after, vector + dim, dim) > 0);
        }
        after = row_of(story, edited, i, 3);
        for (k = 0; k < dim; k++) {
            product += (double)after[k] * vector[k];
        }
        CHECK(fabs(product) < 1e-2);
        after = row_of(story, edited, i, 4);
        for (k = 0; k < 5; k++) {
            CHECK(after[k] == 0);
        }
        CHECK(after[5] != 0);
    }
    free(vector);
    free(plain);
    free(edited);
}

/* The lens of the last layer gives the logits, and edits change them. */
static void lens(const struct story *story) {
    TablaHookOptions options = hook_options();
    TablaEdit edit = edit_of("blk.*.ffn_down", TABLA_EDIT_SCALE, NULL, 0, 0);
    TablaHooks *hooks;
    size_t numbers = story->count * story->vocab, count = 0, sentinel = 4711, i;
    float *residual = residual_with(story, options), *last = allocate(story->count * story->dim);
    float *plain, *other, *found = allocate(numbers);

    plain = all_logits(tabla_model_session(story->model), story->tokens, story->count, story->vocab);
    for (i = 0; i < story->count; i++) {
        memcpy(last + i * story->dim, row_of(story, residual, i, story->layers), story->dim * sizeof *last);
    }
    options.edits = &edit;
    options.edit_count = 1;
    hooks = tabla_hooks_new(story->model, &options);
    CHECK(hooks != NULL);
    CHECK(tabla_hooks_lens(story->model, hooks, last, story->count, NULL, 0, &count) == TABLA_OK);
    CHECK(count == numbers);
    CHECK(tabla_hooks_lens(story->model, hooks, last, story->count, found, numbers, &count) == TABLA_OK);
    CHECK(count == numbers && difference(found, plain, numbers) < 1e-3f);
    FAILS(tabla_hooks_lens(story->model, hooks, last, story->count, found, numbers - 1, &sentinel),
          TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_hooks_lens(story->model, hooks, last, (size_t)-1, found, numbers, &sentinel),
          TABLA_ERROR_TOO_LARGE);
    FAILS(tabla_hooks_lens(story->model, hooks, NULL, 1, found, numbers, &sentinel), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_hooks_lens(story->model, hooks, last, 1, found, numbers, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(sentinel == 4711);

    CHECK(tabla_session_set_hooks(story->session, hooks) == TABLA_OK);
    other = all_logits(story->session, story->tokens, story->count, story->vocab);
    CHECK(difference(other, plain, numbers) > 1e-2f);
    FAILS(tabla_session_captured(story->session, NULL, 0, NULL, 0, &sentinel, &count), TABLA_ERROR_STATE);
    free(other);
    /* NULL removes the hooks. */
    CHECK(tabla_session_set_hooks(story->session, NULL) == TABLA_OK);
    other = all_logits(story->session, story->tokens, story->count, story->vocab);
    CHECK(difference(other, plain, numbers) < 1e-3f);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK);
    free(residual);
    free(last);
    free(plain);
    free(other);
    free(found);
}

/* Tokens of an answer are captured, too. */
static void answers(const struct story *story) {
    TablaHookOptions options = hook_options();
    TablaGenerateOptions generate;
    TablaSession *session = tabla_session_new(story->model);
    TablaHooks *hooks;
    float scale = 1;
    size_t rows = 4711, width = 4711;

    CHECK(tabla_generate_options_init(&generate, sizeof generate) == TABLA_OK);
    generate.temperature = 0;
    generate.max_tokens = 4;
    generate.ignore_eos = 1;
    options.capture = RESIDUAL;
    options.capture_count = 2;
    hooks = tabla_hooks_new(story->model, &options);
    CHECK(tabla_session_set_hooks(session, hooks) == TABLA_OK);
    FAILS(tabla_session_captured(session, NULL, 0, NULL, 0, &rows, &width), TABLA_ERROR_STATE);
    CHECK(tabla_session_begin(session, PROMPT, &generate) == TABLA_OK);
    FAILS(tabla_session_set_hooks(session, NULL), TABLA_ERROR_STATE);
    FAILS(tabla_session_set_adapter_scales(session, &scale, 1), TABLA_ERROR_STATE);
    FAILS(tabla_session_capture(session, story->tokens, story->count), TABLA_ERROR_STATE);
    FAILS(tabla_session_captured(session, NULL, 0, NULL, 0, &rows, &width), TABLA_ERROR_STATE);
    CHECK(rows == 4711 && width == 4711);
    CHECK(tabla_session_end(session) == TABLA_OK && tabla_session_truncate(session, 0) == TABLA_OK);
    CHECK(tabla_session_generate(session, PROMPT, &generate, NULL, NULL, NULL) == TABLA_OK);
    CHECK(tabla_session_captured(session, NULL, 0, NULL, 0, &rows, &width) == TABLA_OK);
    CHECK(rows == story->count + 4);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK && tabla_session_free(session) == TABLA_OK);
}

/* Hooks can be freed in any order with sessions and models. */
static void lifetimes(const struct story *story) {
    TablaHookOptions options = hook_options();
    TablaSession *session = tabla_session_new(story->model);
    TablaModel *other = load();
    TablaHooks *hooks, *others;
    TablaCapturedPoint point;
    size_t rows = 0, width = 0, count = 4711;
    float *row = allocate(story->dim), *out = allocate(story->vocab);

    options.capture = RESIDUAL;
    options.capture_count = 2;
    hooks = tabla_hooks_new(story->model, &options);
    others = tabla_hooks_new(other, &options);
    CHECK(hooks != NULL && others != NULL && hooks != others);
    FAILS(tabla_session_set_hooks(session, others), TABLA_ERROR_ARGUMENT);
    CHECK(strstr(tabla_last_error(), "another model") != NULL);
    FAILS(tabla_hooks_lens(story->model, others, row, 1, out, story->vocab, &count), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_free_model(other) == TABLA_OK && tabla_hooks_free(others) == TABLA_OK);

    CHECK(tabla_session_set_hooks(session, hooks) == TABLA_OK);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK);
    FAILS(tabla_hooks_free(hooks), TABLA_ERROR_HANDLE);
    point.struct_size = sizeof point;
    FAILS(tabla_hooks_point(hooks, 0, &point, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_hooks_lens(story->model, hooks, row, 1, out, story->vocab, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_set_hooks(story->session, hooks), TABLA_ERROR_HANDLE);
    CHECK(count == 4711);
    CHECK(tabla_session_capture(session, story->tokens, story->count) == TABLA_OK);
    CHECK(tabla_session_captured(session, NULL, 0, NULL, 0, &rows, &width) == TABLA_OK);
    CHECK(rows == story->count && width == (story->layers + 1) * story->dim);
    CHECK(tabla_session_free(session) == TABLA_OK);
    FAILS(tabla_session_set_hooks(session, NULL), TABLA_ERROR_HANDLE);
    free(row);
    free(out);
}

/* Hooks with these options are rejected, and the message has these words. */
static void rejected(const struct story *story, const TablaHookOptions *options, TablaStatus code,
                     const char *words) {
    CHECK(tabla_hooks_new(story->model, options) == NULL);
    CHECK(tabla_last_error_code() == code);
    if (strstr(tabla_last_error(), words) == NULL) {
        printf("expected: %s\n", words);
        CHECK(strstr(tabla_last_error(), words) != NULL);
    }
}

static void rejected_edit(const struct story *story, const TablaEdit *edit, const char *words) {
    TablaHookOptions options = hook_options();
    options.edits = edit;
    options.edit_count = 1;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, words);
}

static void invalid_edits(const struct story *story) {
    const float one[1] = {1};
    size_t dim = story->dim;
    float *zeros = allocate(dim);
    TablaEdit edit = edit_of("blk.0", TABLA_EDIT_ADD, one, 1, 1);

    rejected_edit(story, &edit, "expected a vector of");
    edit = edit_of("blk.0", TABLA_EDIT_PROJECT_OUT, zeros, dim, 1);
    rejected_edit(story, &edit, "the direction is zero");
    edit = edit_of("blk.0", TABLA_EDIT_SET, NULL, 0, 0);
    rejected_edit(story, &edit, "the vector is empty");
    edit.vector_count = 1;
    rejected_edit(story, &edit, "vector is NULL");
    edit = edit_of("blk.0", TABLA_EDIT_SCALE, NULL, 0, NAN);
    rejected_edit(story, &edit, "expected finite numbers");
    edit.factor = 0;
    edit.first_column = 1;
    rejected_edit(story, &edit, "column_count is 0");
    edit.column_count = (uint32_t)dim;
    rejected_edit(story, &edit, "out of range");
    edit = edit_of("blk.0", 4, NULL, 0, 0);
    rejected_edit(story, &edit, "invalid action 4");
    edit = edit_of("blk.0.attn_weights", TABLA_EDIT_SCALE, NULL, 0, 0);
    rejected_edit(story, &edit, "can only be captured");
    edit.point = NULL;
    rejected_edit(story, &edit, "no point matches");
    edit.point = "\xff";
    rejected_edit(story, &edit, "edits[0].point is not UTF-8");
    free(zeros);
}

static void invalid_options(const struct story *story) {
    static const uint32_t layers[1] = {1}, list[2] = {2, 1};
    const float two[2] = {1, 2};
    const char *pattern = "blk.99";
    const TablaAdapter *adapter = NULL;
    TablaControlVector *vector;
    TablaSteer steer = steer_of(NULL, 1);
    TablaHookOptions options = hook_options();
    struct {
        TablaHookOptions known;
        char newer[8];
    } grown;

    options.capture = &pattern;
    options.capture_count = 1;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "no point matches \"blk.99\"");
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "blk.N.attn_output");
    pattern = NULL;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "capture[0] is NULL");
    pattern = "\xff";
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "capture[0] is not UTF-8");
    options.capture = NULL;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "capture is NULL");
    options.capture_count = 0;
    options.positions = 3;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "invalid positions 3");
    options.positions = TABLA_POSITIONS_LIST;
    options.position_list_count = 2;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "position_list is NULL");
    options.position_list = list;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "not in ascending order");

    options = hook_options();
    options.edit_count = 1;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "edits is NULL");
    options = hook_options();
    options.adapter_count = 1;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "adapters is NULL");
    options.adapters = &adapter;
    rejected(story, &options, TABLA_ERROR_HANDLE, "adapter handle is NULL");
    options = hook_options();
    options.steer_count = 1;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "steers is NULL");
    options.steers = &steer;
    rejected(story, &options, TABLA_ERROR_HANDLE, "control vector handle is NULL");
    vector = tabla_control_vector_new(NULL, layers, 1, two, 2);
    CHECK(vector != NULL);
    steer = steer_of(vector, 1);
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "the vectors have 2 numbers");
    CHECK(tabla_control_vector_free(vector) == TABLA_OK);

    options = hook_options();
    options.struct_size = 0;
    rejected(story, &options, TABLA_ERROR_ARGUMENT, "struct_size");
    memset(&grown, 0, sizeof grown);
    CHECK(tabla_hook_options_init(&grown.known, sizeof grown) == TABLA_OK);
    grown.newer[7] = 1;
    rejected(story, &grown.known, TABLA_ERROR_ARGUMENT, "does not support");
}

/* Every function rejects this handle. */
static void rejects_handle(const struct story *story, void *handle) {
    TablaCapturedPoint point;
    uint32_t token = 1;
    size_t count = 4711, width = 4711;
    float row[1] = {0.5f};

    point.struct_size = sizeof point;
    CHECK(tabla_hooks_new(handle, NULL) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    CHECK(tabla_adapter_load(handle, "f") == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);
    FAILS(tabla_hooks_point(handle, 0, &point, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_hooks_lens(handle, handle, row, 0, row, 1, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_hooks_lens(story->model, handle, row, 0, row, 1, &count), TABLA_ERROR_HANDLE);
    FAILS(tabla_hooks_free(handle), TABLA_ERROR_HANDLE);
    FAILS(tabla_adapter_free(handle), TABLA_ERROR_HANDLE);
    FAILS(tabla_control_vector_save(handle, "f"), TABLA_ERROR_HANDLE);
    FAILS(tabla_control_vector_free(handle), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_set_hooks(handle, NULL), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_set_adapter_scales(handle, row, 1), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_capture(handle, &token, 1), TABLA_ERROR_HANDLE);
    FAILS(tabla_session_captured(handle, NULL, 0, row, 1, &count, &width), TABLA_ERROR_HANDLE);
    CHECK(count == 4711 && width == 4711 && row[0] == 0.5f);
}

int main(int argc, char **argv) {
    struct story story;
    TablaSession *freed;
    int local = 0;
    if (argc != 4) {
        fprintf(stderr, "usage: hooks <folder to write> <model> <adapter of the model>\n");
        return 2;
    }
    layout();
    defaults();
    story = load_story();
    points(&story);
    captures(&story);
    positions(&story);
    edits(&story);
    lens(&story);
    answers(&story);
    control_vectors(&story, argv[1], argv[2]);
    adapters(&story, argv[1], argv[2], argv[3]);
    lifetimes(&story);
    invalid_edits(&story);
    invalid_options(&story);
    freed = tabla_session_new(story.model);
    CHECK(tabla_session_free(freed) == TABLA_OK);
    rejects_handle(&story, NULL);
    rejects_handle(&story, &local);
    rejects_handle(&story, freed);
    FAILS(tabla_session_set_hooks(story.session, (TablaHooks *)(void *)story.session), TABLA_ERROR_HANDLE);
    CHECK(tabla_session_free(story.session) == TABLA_OK && tabla_free_model(story.model) == TABLA_OK);
    printf("%d checks passed, %d failed\n", passed, failed);
    return failed != 0;
}
