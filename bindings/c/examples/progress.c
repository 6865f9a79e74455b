/*
 * Loads a model with a progress bar and log messages.
 *
 *     progress [model]
 */
#include <stdio.h>
#include <tabla.h>

static int32_t bar(uint32_t stage, const char *name, double milliseconds, float done, void *user_data) {
    int full = (int)(done * 30), i;
    (void)user_data;
    printf("\r%2u/18 [", (unsigned)stage);
    for (i = 0; i < 30; i++) {
        putchar(i < full ? '=' : ' ');
    }
    printf("] %-14s %7.1f ms", name, milliseconds);
    fflush(stdout);
    return 0; /* any other value cancels loading */
}

static void line(int32_t level, const char *message, void *user_data) {
    (void)user_data;
    fprintf(stderr, "%s: %s\n", level == TABLA_LOG_ERROR ? "error" : "warning", message);
}

int main(int argc, char **argv) {
    TablaLoadOptions options = {0};
    TablaModelInfo info = {0};
    TablaModel *model;

    tabla_log_set_callback(TABLA_LOG_WARN, line, NULL);
    options.struct_size = sizeof options;
    options.progress = bar;
    model = tabla_model_load(argc > 1 ? argv[1] : NULL, &options);
    puts("");
    info.struct_size = sizeof info;
    if (model == NULL || tabla_model_info(model, &info) != TABLA_OK) {
        fprintf(stderr, "%s\n", tabla_last_error());
        return 1;
    }
    printf("%s: %u layers, %llu parameters, %s\n", info.architecture, (unsigned)info.layers,
           (unsigned long long)info.parameters, info.device);
    return tabla_free_model(model);
}
