/*
 * Tests of hooks.c: control vectors and LoRA adapters.
 */
#ifndef ADAPTERS_H
#define ADAPTERS_H

#include "residual.h"

static void path_in(char path[4096], const char *folder, const char *name) {
    int length = snprintf(path, 4096, "%s/%s", folder, name);
    CHECK(length > 0 && length < 4096);
}

/* Control vectors are the same after a round trip through a file. */
static void control_vectors(const struct story *story, const char *folder, const char *no_vector) {
    static const char *const names[2] = {"vector.gguf", "vector.npy"};
    const uint32_t layers[2] = {1, 3}, first = 0;
    TablaHookOptions options = hook_options();
    TablaControlVector *vector, *loaded;
    TablaSteer steer;
    TablaEdit edit;
    char path[4096];
    size_t dim = story->dim, i;
    float *numbers = allocate(2 * dim), *plain = residual_with(story, options), *steered, *again;

    for (i = 0; i < 2 * dim; i++) {
        numbers[i] = cosf((float)i);
    }
    vector = tabla_control_vector_new("llama", layers, 2, numbers, dim);
    CHECK(vector != NULL);
    steer = steer_of(vector, 2);
    options.steers = &steer;
    options.steer_count = 1;
    steered = residual_with(story, options);
    for (i = 0; i < story->count; i++) {
        const float *before = row_of(story, plain, i, 2), *after = row_of(story, steered, i, 2);
        CHECK(difference(row_of(story, plain, i, 1), row_of(story, steered, i, 1), dim) < 1e-4f);
        CHECK(fabsf(after[0] - before[0] - 2 * numbers[0]) < 1e-3f);
        CHECK(fabsf(after[dim - 1] - before[dim - 1] - 2 * numbers[dim - 1]) < 1e-3f);
    }
    for (i = 0; i < 2; i++) {
        path_in(path, folder, names[i]);
        CHECK(tabla_control_vector_save(vector, path) == TABLA_OK);
        loaded = tabla_control_vector_load(path);
        CHECK(loaded != NULL);
        steer.vector = loaded;
        again = residual_with(story, options);
        CHECK(difference(steered, again, residual_count(story)) < 1e-4f);
        CHECK(tabla_control_vector_free(loaded) == TABLA_OK);
        free(again);
    }
    CHECK(tabla_hooks_new(story->model, &options) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);

    /* Only the vector of layer 1 is added, as by an edit. */
    free(steered);
    steer = steer_of(vector, 2);
    steer.first_layer = 1;
    steer.layer_count = 2;
    steered = residual_with(story, options);
    options = hook_options();
    edit = edit_of("blk.1", TABLA_EDIT_ADD, numbers, dim, 2);
    options.edits = &edit;
    options.edit_count = 1;
    again = residual_with(story, options);
    CHECK(difference(steered, again, residual_count(story)) < 1e-4f);
    CHECK(tabla_control_vector_free(vector) == TABLA_OK);

    vector = tabla_control_vector_new(NULL, &first, 1, numbers, dim);
    CHECK(vector != NULL);
    path_in(path, folder, "first.gguf");
    FAILS(tabla_control_vector_save(vector, path), TABLA_ERROR_UNSUPPORTED);
    FAILS(tabla_control_vector_save(vector, "there/is/no/such.npy"), TABLA_ERROR_IO);
    FAILS(tabla_control_vector_save(vector, NULL), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_control_vector_free(vector) == TABLA_OK);
    CHECK(tabla_control_vector_load("there/is/no/such.npy") == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_IO);
    CHECK(strstr(tabla_last_error(), "there/is/no/such.npy") != NULL);
    CHECK(tabla_control_vector_load(no_vector) == NULL && tabla_last_error_code() == TABLA_ERROR_FORMAT);
    CHECK(tabla_control_vector_load(NULL) == NULL && tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_control_vector_new("llama", layers, 0, numbers, dim) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_control_vector_new("llama", layers, 2, numbers, 0) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_control_vector_new("llama", NULL, 2, numbers, dim) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_control_vector_new("llama", layers, 2, NULL, dim) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_control_vector_new("\xff", layers, 2, numbers, dim) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    free(numbers);
    free(plain);
    free(steered);
    free(again);
}

/* An adapter changes the logits by its scale. */
static void adapters(const struct story *story, const char *folder, const char *path,
                     const char *adapter_path) {
    enum { COUNT = 6 };
    static const uint32_t tokens[COUNT] = {3, 17, 2, 40, 5, 6};
    TablaHookOptions options = hook_options();
    TablaLoadOptions loading = cpu_options();
    TablaModel *model = tabla_model_load(path, &loading);
    TablaSession *session = tabla_session_new(model);
    TablaModelInfo info;
    TablaHooks *hooks;
    const TablaAdapter *adapters[1];
    TablaAdapter *adapter;
    float scales[2] = {1, 1};
    float *plain, *whole, *found;
    size_t numbers;

    info.struct_size = sizeof info;
    if (tabla_model_info(model, &info) != TABLA_OK) {
        CHECK(model != NULL);
        return;
    }
    numbers = COUNT * (size_t)info.vocab;
    plain = all_logits(session, tokens, COUNT, info.vocab);
    adapter = tabla_adapter_load(model, adapter_path);
    CHECK(adapter != NULL);
    adapters[0] = adapter;
    options.adapters = adapters;
    options.adapter_count = 1;
    hooks = tabla_hooks_new(model, &options);
    CHECK(hooks != NULL);
    CHECK(tabla_adapter_free(adapter) == TABLA_OK); /* the hooks continue */
    CHECK(tabla_session_set_hooks(session, hooks) == TABLA_OK);
    whole = all_logits(session, tokens, COUNT, info.vocab);
    CHECK(difference(whole, plain, numbers) > 1e-2f);
    scales[0] = 0;
    CHECK(tabla_session_set_adapter_scales(session, scales, 1) == TABLA_OK);
    found = all_logits(session, tokens, COUNT, info.vocab);
    CHECK(difference(found, plain, numbers) < 1e-4f);
    free(found);
    scales[0] = 1;
    CHECK(tabla_session_set_adapter_scales(session, scales, 1) == TABLA_OK);
    found = all_logits(session, tokens, COUNT, info.vocab);
    CHECK(difference(found, whole, numbers) < 1e-4f);
    FAILS(tabla_session_set_adapter_scales(session, scales, 2), TABLA_ERROR_ARGUMENT);
    FAILS(tabla_session_set_adapter_scales(session, NULL, 1), TABLA_ERROR_ARGUMENT);
    scales[0] = NAN;
    FAILS(tabla_session_set_adapter_scales(session, scales, 1), TABLA_ERROR_ARGUMENT);
    CHECK(tabla_session_set_hooks(session, NULL) == TABLA_OK);
    FAILS(tabla_session_set_adapter_scales(session, scales, 1), TABLA_ERROR_STATE);
    CHECK(tabla_hooks_new(model, &options) == NULL && tabla_last_error_code() == TABLA_ERROR_HANDLE);

    CHECK(tabla_adapter_load(model, "there/is/no/adapter") == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_IO);
    CHECK(strstr(tabla_last_error(), "there/is/no/adapter") != NULL);
    CHECK(tabla_adapter_load(model, folder) == NULL && tabla_last_error_code() == TABLA_ERROR_IO);
    CHECK(strstr(tabla_last_error(), "adapter_config.json") != NULL);
    CHECK(tabla_adapter_load(model, NULL) == NULL && tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_adapter_load(model, path) == NULL && tabla_last_error()[0] != '\0');
    /* The adapter has other shapes than the story model. */
    CHECK(tabla_adapter_load(story->model, adapter_path) == NULL);
    CHECK(tabla_last_error_code() == TABLA_ERROR_ARGUMENT);
    CHECK(tabla_hooks_free(hooks) == TABLA_OK && tabla_session_free(session) == TABLA_OK);
    CHECK(tabla_free_model(model) == TABLA_OK);
    free(plain);
    free(whole);
    free(found);
}

#endif
