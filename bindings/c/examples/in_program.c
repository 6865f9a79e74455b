/*
 * Continues a text with a model that is a part of the program:
 *
 *     cc -DMODEL='"model.gguf"' in_program.c -ltabla
 *
 * The assembler of GCC and Clang copies the file into the data of the program, on ELF systems such as Linux. `#embed` of
 * C23 does the same everywhere.
 */
#include <stdio.h>
#include <tabla.h>

#ifndef MODEL
#define MODEL "models/story.gguf"
#endif

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".global model_start, model_end\n"
        "model_start: .incbin \"" MODEL "\"\n"
        "model_end: .byte 0\n"
        ".text\n");

extern const unsigned char model_start[], model_end[];

/* The data is a part of the program, so there is nothing to release. */
static void keep(void *user_data) {
    (void)user_data;
}

static int32_t print(uint32_t token, const char *text, size_t text_bytes, void *user_data) {
    (void)token;
    (void)user_data;
    fwrite(text, 1, text_bytes, stdout);
    return 0;
}

int main(int argc, char **argv) {
    size_t size = (size_t)(model_end - model_start);
    TablaModel *model = tabla_load_memory(model_start, size, keep, NULL, NULL);
    const char *prompt = argc > 1 ? argv[1] : "Once upon a time";
    TablaGenerateOptions options;

    tabla_generate_options_init(&options, sizeof options);
    options.max_tokens = 60;
    if (model == NULL || tabla_generate(model, prompt, &options, print, NULL, NULL) != TABLA_OK) {
        fprintf(stderr, "%s\n", tabla_last_error());
        return 1;
    }
    printf("\n");
    tabla_free_model(model);
    return 0;
}
