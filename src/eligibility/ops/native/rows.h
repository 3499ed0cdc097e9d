/* The C interface of the row functions. */
#pragma once
#include "row_task.h"

extern "C" {

/* How many instruction sets this processor can run; the last of them is the fastest. */
int eligibility_instruction_sets(void);

const char *eligibility_instruction_set_name(int index);

/* Rows [start, stop) of a task. dtype: 0 float32, 1 bfloat16, 2 float16, 3 float64. Nothing is
 * written for rows that are refused. False: there is no memory for the scratch of one row. */
bool eligibility_rows(const row_task *task, int dtype, int instruction_set, int64_t start,
                      int64_t stop, row_report *report);
}
