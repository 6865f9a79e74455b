/*
 * How near texts are to the first of them.
 *
 *     embed [model [text ...]]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tabla.h>

int main(int argc, char **argv) {
    static const char *const some[] = {"A girl plays with a ball.", "The child has a toy.", "Rain fell."};
    const char *const *texts = argc > 2 ? (const char *const *)argv + 2 : some;
    size_t texts_count = argc > 2 ? (size_t)argc - 2 : 3, count, i, k;
    TablaLoadOptions loading = {0};
    TablaEmbedOptions how = {0};
    TablaModel *model;
    float *rows;

    loading.struct_size = sizeof loading;
    loading.embeddings = 1;
    how.struct_size = sizeof how;
    if (argc < 2) {
        how.pooling = TABLA_POOLING_MEAN; /* the story model says nothing of it */
    }
    model = tabla_load_model_with(argc > 1 ? argv[1] : NULL, &loading);
    if (model == NULL || tabla_embed(model, texts, texts_count, &how, NULL, 0, &count) != TABLA_OK) {
        fprintf(stderr, "%s\n", tabla_last_error());
        return 1;
    }
    rows = malloc(count * sizeof *rows);
    if (rows == NULL || tabla_embed(model, texts, texts_count, &how, rows, count, &count) != TABLA_OK) {
        fprintf(stderr, "%s\n", tabla_last_error());
        return 1;
    }
    for (i = 0; i < texts_count; i++) {
        size_t dim = count / texts_count;
        double cosine = 0;
        for (k = 0; k < dim; k++) {
            cosine += (double)rows[k] * rows[i * dim + k]; /* rows have the length 1 */
        }
        printf("%6.3f  %s\n", cosine, texts[i]);
    }
    free(rows);
    return tabla_free_model(model);
}
