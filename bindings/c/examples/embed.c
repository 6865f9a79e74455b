/*
 * Prints the similarity of each text to the first one.
 *
 *     embed [model [text ...]]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tabla.h>

int main(int argc, char **argv) {
    static const char *const samples[] = {"A girl plays with a ball.", "The child has a toy.", "Rain fell."};
    const char *const *texts = argc > 2 ? (const char *const *)argv + 2 : samples;
    size_t texts_count = argc > 2 ? (size_t)argc - 2 : 3, count, i, k;
    TablaLoadOptions load = {0};
    TablaEmbedOptions embed = {0};
    TablaModel *model;
    float *rows;

    load.struct_size = sizeof load;
    load.embeddings = 1;
    embed.struct_size = sizeof embed;
    if (argc < 2) {
        embed.pooling = TABLA_POOLING_MEAN; /* the story model does not configure one */
    }
    model = tabla_model_load(argc > 1 ? argv[1] : NULL, &load);
    if (model == NULL || tabla_embed(model, texts, texts_count, &embed, NULL, 0, &count) != TABLA_OK) {
        fprintf(stderr, "%s\n", tabla_last_error());
        return 1;
    }
    rows = malloc(count * sizeof *rows);
    if (rows == NULL || tabla_embed(model, texts, texts_count, &embed, rows, count, &count) != TABLA_OK) {
        fprintf(stderr, "%s\n", tabla_last_error());
        return 1;
    }
    for (i = 0; i < texts_count; i++) {
        size_t dim = count / texts_count;
        double cosine = 0;
        for (k = 0; k < dim; k++) {
            cosine += (double)rows[k] * rows[i * dim + k]; /* embeddings are normalized */
        }
        printf("%6.3f  %s\n", cosine, texts[i]);
    }
    free(rows);
    return tabla_free_model(model);
}
