/* pack_file.h - a packed file while it is being written (docs/FORMAT.md).
 *
 * Owns a temporary file beside the target, "<path>.part", locked so that two writers do not meet. Nothing stands under
 * the target's name before every byte is with the disk; on failure nothing is left. One thread creates, begins and
 * finishes; between, any number of threads write. */
#ifndef LV_ENGINE_PACK_FILE_H
#define LV_ENGINE_PACK_FILE_H

#include "model/gguf.h"

typedef struct {
    lv_tensor out; /* as it will be; the caller fills in all but the offset */
    const lv_tensor *source;
    uint64_t chunk_first; /* index of its first checksum */
} lv_packed_tensor;

typedef struct {
    char *path, *part_path;
    int descriptor;
    lv_packed_tensor *tensors; /* borrowed */
    uint32_t tensors_count;
    uint64_t *sums; /* of the chunks; the writers fill them in */
    uint64_t chunks_count;
    uint64_t sums_offset, header_sum_offset, data_begin; /* in the file */
    uint64_t bytes;                                      /* of the finished file */
} lv_pack_file;

/* The name of the temporary file, to be freed. */
lever_status lv_pack_file_part_path(const char *path, char **part_path, lever_error *error);

lever_status lv_pack_file_create(lv_pack_file *file, const char *path, lever_error *error);
/* Writes keys and tensor table, gives every tensor its place and reserves the space on disk. `gguf`: whose keys are
 * copied. `source`: the text of LV_PACK_KEY_SOURCE. LEVER_E_IO with the bytes needed and free when the disk is full. */
lever_status lv_pack_file_begin(lv_pack_file *file, const lv_gguf *gguf, lv_packed_tensor *tensors,
                                uint32_t tensors_count, const char *source, lever_error *error);
lever_status lv_pack_file_write(const lv_pack_file *file, const void *data, uint64_t offset, size_t bytes,
                                lever_error *error);
/* Writes the checksums, hands everything to the disk, and renames. */
lever_status lv_pack_file_finish(lv_pack_file *file, lever_error *error);
/* Gives everything back; without a finish before, the temporary file is removed. A zeroed one is accepted. */
void lv_pack_file_close(lv_pack_file *file);

#endif
