/* vocab_load.c - having libllama load a vocabulary, quietly.
 *
 * libllama wants a file: it gets one in memory (memfd, else a temporary file) with the keys of the tokenizer and no
 * tensors. What it says meanwhile is heard (ggml_log.h). A program that carries a libllama of its own keeps its own log
 * as long as the two are different copies. */
#include <errno.h>
#include <llama.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "model/ggml_log.h"
#include "model/vocab_internal.h"

static const char *const prefixes[] = {"general.architecture", "general.name", "tokenizer.ggml.", NULL};
static const char *const pre_left_out[] = {"tokenizer.ggml.pre", NULL};

uint64_t lv_vocab_skeleton_bytes(const lv_gguf *gguf) {
    return lv_gguf_written_bytes(gguf, prefixes, NULL);
}

static pthread_once_t log_once = PTHREAD_ONCE_INIT;

static void set_log(void) {
    llama_log_set(lv_ggml_hear, NULL);
}

/* A file that is nowhere, positioned at its beginning; NULL with errno. */
static FILE *open_nameless(void) {
#ifdef SYS_memfd_create
    int descriptor = (int)syscall(SYS_memfd_create, "lever-vocabulary", 1u /* MFD_CLOEXEC */);
    if (descriptor >= 0) {
        FILE *file = fdopen(descriptor, "w+b");
        if (!file) close(descriptor);
        return file;
    }
#endif
    return tmpfile();
}

lever_status lv_vocab_load(struct llama_model **model, const lv_gguf *gguf, bool without_pre, bool *unknown_pre,
                           const lv_log *log, lever_error *error) {
    *model = NULL;
    *unknown_pre = false;
    pthread_once(&log_once, set_log);
    FILE *file = open_nameless();
    if (!file)
        return lv_fail(error, LEVER_E_IO, "a temporary file for the vocabulary of %s could not be made: %s",
                       lv_gguf_path(gguf), strerror(errno));
    lever_status status = lv_gguf_write_keys(gguf, fileno(file), prefixes, without_pre ? pre_left_out : NULL, error);
    if (status == LEVER_OK) {
        rewind(file);
        struct llama_model_params params = llama_model_default_params();
        params.vocab_only = true;
        params.load_mode = LLAMA_LOAD_MODE_NONE;
        params.n_gpu_layers = 0;
        lv_ggml_listener l = {.log = log, .source = "libllama"};
        lv_ggml_listen(&l);
        *model = llama_model_load_from_file_ptr(file, params);
        lv_ggml_listen(NULL);
        *unknown_pre = !*model && strstr(l.error, "unknown pre-tokenizer");
        const char *marker = "error loading model: ", *reason = strstr(l.error, marker);
        if (!*model)
            status = lv_fail(error, LEVER_E_FORMAT, "%s: the vocabulary cannot be loaded: %s", lv_gguf_path(gguf),
                             reason ? reason + strlen(marker) : l.error);
    }
    fclose(file);
    return status;
}
