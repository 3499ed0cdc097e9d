/* What Python sees of the row functions. Tensors come as objects with a method data_ptr(): torch's
 * headers are not needed, and no one's layout but the address of the numbers is relied on. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rows.h"

/* Grows when the arguments of `run` change: a library that was built before is not called then. */
static const int INTERFACE = 5;

/* From so many logits on other Python threads may run meanwhile. */
static const int64_t LONG = 1 << 14;

static PyObject *data_ptr;

static bool read_pointer(PyObject *object, const void **result) {
    *result = nullptr;
    if (object == Py_None) return true;
    PyObject *address = PyObject_CallMethodNoArgs(object, data_ptr);
    if (!address) return false;
    *result = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    /* A tensor that is given is never empty; without memory are those of other devices, fake ones,
     * and those whose storage was freed. */
    if (*result == nullptr && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a tensor without memory");
    return *result != nullptr;
}

/* run(dtype, instruction_set, start, stop, value, *fields of row_task in their order) -> (refused,
 * impossible); the objective is added up into `value`, a tensor of one number, or None. */
static PyObject *run(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
    row_task task = {};
    const void **const pointers[] = {
        &task.logits, (const void **)&task.action, (const void **)&task.uniform, &task.counts, (const void **)&task.mask,
        &task.advantage, &task.weight, &task.bonus, &task.normalizer, &task.old, &task.reference,
        (const void **)&task.log_prob, (const void **)&task.entropy,
        (const void **)&task.log_normalizer, (const void **)&task.loss,
        (const void **)&task.gradient,
    };
    double *const numbers[] = {
        &task.scale_advantage, &task.scale_bonus, &task.scale_square, &task.scale_reference,
        &task.clip_low, &task.clip_high, &task.temperature, &task.softcap,
    };
    int64_t *const integers[] = {
        &task.rows, &task.categories, &task.samples, &task.sample_stride, &task.logits_stride,
        &task.counts_stride, &task.mask_stride, &task.gradient_stride, &task.kl_estimator,
        &task.stream,
    };
    const Py_ssize_t wanted = 5 + sizeof pointers / sizeof *pointers +
                              sizeof numbers / sizeof *numbers + sizeof integers / sizeof *integers;
    if (count != wanted)
        return PyErr_Format(PyExc_TypeError, "run takes %zd arguments, not %zd", wanted, count);
    int64_t first[4];
    for (int64_t &number : first) number = PyLong_AsLongLong(*arguments++);
    const void *value;
    if (!read_pointer(*arguments++, &value)) return nullptr;
    for (const void **pointer : pointers)
        if (!read_pointer(*arguments++, pointer)) return nullptr;
    for (double *number : numbers) *number = PyFloat_AsDouble(*arguments++);
    for (int64_t *number : integers) *number = PyLong_AsLongLong(*arguments++);
    if (PyErr_Occurred()) return nullptr;
    const bool is_long = (first[3] - first[2]) * task.categories >= LONG;
    row_report report;
    PyThreadState *state = is_long ? PyEval_SaveThread() : nullptr;
    bool done = eligibility_rows(&task, (int)first[0], (int)first[1], first[2], first[3], &report);
    if (state) PyEval_RestoreThread(state);
    if (!done) return PyErr_NoMemory();
    if (value && first[0] == 3)
        *(double *)value = report.value;
    else if (value)
        *(float *)value = (float)report.value;
    if (report.refused < 0 && report.impossible < 0) Py_RETURN_NONE;
    return Py_BuildValue("LL", (long long)report.refused, (long long)report.impossible);
}

/* loss(dtype, instruction_set, value, logits, action, advantage, gradient, rows, categories,
 * scale_advantage, scale_bonus): the commonest task, of contiguous tensors; value may be None. */
static PyObject *loss(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 11) return PyErr_Format(PyExc_TypeError, "loss takes 11 arguments, not %zd", count);
    row_task task = {};
    const void *value;
    if (!read_pointer(arguments[2], &value) || !read_pointer(arguments[3], &task.logits) ||
        !read_pointer(arguments[4], (const void **)&task.action) ||
        !read_pointer(arguments[5], &task.advantage) ||
        !read_pointer(arguments[6], (const void **)&task.gradient))
        return nullptr;
    const int dtype = (int)PyLong_AsLong(arguments[0]);
    const int instruction_set = (int)PyLong_AsLong(arguments[1]);
    task.rows = PyLong_AsLongLong(arguments[7]);
    task.categories = PyLong_AsLongLong(arguments[8]);
    task.scale_advantage = PyFloat_AsDouble(arguments[9]);
    task.scale_bonus = PyFloat_AsDouble(arguments[10]);
    if (PyErr_Occurred()) return nullptr;
    task.temperature = 1.0;
    task.samples = 1;
    task.logits_stride = task.gradient_stride = task.categories;
    row_report report;
    PyThreadState *state = task.rows * task.categories >= LONG ? PyEval_SaveThread() : nullptr;
    bool done = eligibility_rows(&task, dtype, instruction_set, 0, task.rows, &report);
    if (state) PyEval_RestoreThread(state);
    if (!done) return PyErr_NoMemory();
    if (value && dtype == 3)
        *(double *)value = report.value;
    else if (value)
        *(float *)value = (float)report.value;
    if (report.refused < 0) Py_RETURN_NONE;
    return PyLong_FromLongLong(report.refused);
}

/* sample(dtype, instruction_set, logits, uniform, action, log_prob, rows, categories) -> whether each
 * row has a distribution; of contiguous tensors, one action a row. */
static PyObject *sample(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 8) return PyErr_Format(PyExc_TypeError, "sample takes 8 arguments, not %zd", count);
    row_task task = {};
    if (!read_pointer(arguments[2], &task.logits) ||
        !read_pointer(arguments[3], (const void **)&task.uniform) ||
        !read_pointer(arguments[4], (const void **)&task.action) ||
        !read_pointer(arguments[5], (const void **)&task.log_prob))
        return nullptr;
    const int dtype = (int)PyLong_AsLong(arguments[0]);
    const int instruction_set = (int)PyLong_AsLong(arguments[1]);
    task.rows = PyLong_AsLongLong(arguments[6]);
    task.categories = PyLong_AsLongLong(arguments[7]);
    if (PyErr_Occurred()) return nullptr;
    task.temperature = 1.0;
    task.samples = 1;
    task.logits_stride = task.categories;
    row_report report;
    PyThreadState *state = task.rows * task.categories >= LONG ? PyEval_SaveThread() : nullptr;
    bool done = eligibility_rows(&task, dtype, instruction_set, 0, task.rows, &report);
    if (state) PyEval_RestoreThread(state);
    if (!done) return PyErr_NoMemory();
    return PyBool_FromLong(report.impossible < 0);
}

static PyMethodDef METHODS[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, "Rows of a task."},
    {"loss", (PyCFunction)(void (*)(void))loss, METH_FASTCALL, "A loss and its gradient."},
    {"sample", (PyCFunction)(void (*)(void))sample, METH_FASTCALL, "Actions, drawn."},
    {nullptr, nullptr, 0, nullptr},
};

static PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_rows", "The row functions, compiled.", -1, METHODS,
    nullptr, nullptr, nullptr, nullptr,
};

PyMODINIT_FUNC PyInit__rows(void) {
    data_ptr = PyUnicode_InternFromString("data_ptr");
    PyObject *module = PyModule_Create(&MODULE), *sets = PyTuple_New(eligibility_instruction_sets());
    if (!data_ptr || !module || !sets) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sets); i++)
        PyTuple_SET_ITEM(sets, i, PyUnicode_FromString(eligibility_instruction_set_name((int)i)));
    if (PyModule_AddObject(module, "INSTRUCTION_SETS", sets) < 0 ||
        PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        return nullptr;
    return module;
}
