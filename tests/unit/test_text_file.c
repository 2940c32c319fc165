/* test_text_file.c - a file that is replaced is one text or the other, whole, whoever writes it at once. */
#include "support/check.h"

#include <pthread.h>
#include <string.h>

#include "base/text_file.h"
#include "support/scratch.h"

enum { ROUNDS = 300, WRITERS = 4, TEXT_BYTES_MAX = 40000 };

typedef struct {
    const char *path;
    char text[TEXT_BYTES_MAX];
    size_t bytes;
    unsigned failures;
} writer;

static writer writers[WRITERS];

static void *write_often(void *user) {
    writer *self = user;
    for (int i = 0; i < ROUNDS; i++)
        self->failures += lv_text_file_replace(self->path, self->text, self->bytes, NULL) != LEVER_OK;
    return NULL;
}

static void threads_do_not_meet(void **state) {
    (void)state;
    static char path[4096], found[TEXT_BYTES_MAX + 1];
    pthread_t threads[WRITERS];
    scratch_path("replaced.txt", path, sizeof path);
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (writer){.path = path, .bytes = (size_t)TEXT_BYTES_MAX >> i};
        memset(writers[i].text, 'a' + i, writers[i].bytes);
        assert_int_equal(pthread_create(&threads[i], NULL, write_often, &writers[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(writers[i].failures, 0);
    }
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t bytes = fread(found, 1, sizeof found, file);
    fclose(file);
    assert_in_range(found[0], 'a', 'a' + WRITERS - 1);
    const writer *last = &writers[found[0] - 'a'];
    assert_int_equal(bytes, last->bytes);
    assert_memory_equal(found, last->text, bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_do_not_meet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
