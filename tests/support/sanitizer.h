/* sanitizer.h - whether the program runs under a sanitizer, of gcc or of clang.
 *
 * Its shadow of the memory makes the process several times as large and stacks deeper, so tests that hold either
 * against a limit skip there. */
#ifndef LV_TESTS_SANITIZER_H
#define LV_TESTS_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define UNDER_SANITIZER true
#endif
#endif
#ifndef UNDER_SANITIZER
#define UNDER_SANITIZER false
#endif

/* For cmocka's tests of what the whole process takes. */
#define SKIP_WHERE_MEMORY_IS_NOT_OUR_OWN()                                                      \
    do {                                                                                        \
        if (UNDER_SANITIZER) {                                                                  \
            print_message("skipped: the sanitizer's own memory counts as the process's too\n"); \
            skip();                                                                             \
        }                                                                                       \
    } while (0)

#endif
