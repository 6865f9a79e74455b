/*
 * Several sessions of one model, each on its own thread. They are computed at the same time, and share
 * the KV cache of common prefixes.
 *
 *     threads [model]
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <tabla.h>

enum { THREADS = 4 };

static TablaModel *model;

static int32_t collect(uint32_t token, const char *text, size_t text_bytes, void *user_data) {
    (void)token;
    fwrite(text, 1, text_bytes, user_data);
    return 0;
}

static void *generate(void *argument) {
    int number = *(int *)argument;
    TablaSession *session = tabla_session_new(model);
    TablaGenerateOptions options;
    char story[4096];
    FILE *out = fmemopen(story, sizeof story, "w");

    tabla_generate_options_init(&options, sizeof options);
    options.max_tokens = 40;
    options.seed = (uint64_t)number;
    if (tabla_session_generate(session, "Once upon a time", &options, collect, out, NULL) != TABLA_OK) {
        fprintf(stderr, "%d: %s\n", number, tabla_last_error());
    }
    fclose(out);
    printf("%d: Once upon a time%s\n", number, story);
    tabla_session_free(session);
    return NULL;
}

int main(int argc, char **argv) {
    TablaLoadOptions options = {0};
    pthread_t threads[THREADS];
    int numbers[THREADS], i;

    options.struct_size = sizeof options;
    options.sequences = THREADS;
    model = tabla_model_load(argc > 1 ? argv[1] : NULL, &options);
    if (model == NULL) {
        fprintf(stderr, "%s\n", tabla_last_error());
        return 1;
    }
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, generate, &numbers[i]);
    }
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    return tabla_free_model(model);
}
