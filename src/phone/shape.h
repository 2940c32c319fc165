/* shape.h - a model as a phone's timing sees it: how many weights and bytes a layer and the head have.
 *
 * Known shapes go by names such as "llama-3.1-8b-q4_0": family and size, then the type of the layers (q4_0, q8_0, f16);
 * the head is Q6_K with q4_0, else as the layers. Pure; any thread. */
#ifndef LV_PHONE_SHAPE_H
#define LV_PHONE_SHAPE_H

#include "base/status.h"

typedef struct {
    char name[48];
    double layers_count;
    double layer_weights, layer_bytes;
    double head_weights, head_bytes;
    double width, key_value_width; /* of the hidden state; of a token's keys in a layer, values being as many */
    double vocabulary;
} lv_phone_shape;

/* LEVER_E_ARGUMENT, with the list of names, when there is none of this name. */
lever_status lv_phone_shape_find(lv_phone_shape *shape, const char *name, lever_error *error);

/* The same model with a head of the first `rows` tokens only, if it has more, in `weight_bytes` for a weight, if it has
 * more. */
void lv_phone_shape_cut_head(lv_phone_shape *shape, double rows, double weight_bytes);

#endif
