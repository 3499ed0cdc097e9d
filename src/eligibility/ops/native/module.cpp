/* What Python sees of the row functions. Tensors come as objects with a method data_ptr(): torch's
 * headers are not needed, and no one's layout but the address of the numbers is relied on. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rows.h"

/* Number of logits from which other Python threads may run meanwhile. */
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

#define NAME(type, name) #name,
static const char *const FIELDS[] = {ROW_POINTERS(NAME) ROW_NUMBERS(NAME) ROW_INTEGERS(NAME)};
static const Py_ssize_t FIELD_COUNT = sizeof FIELDS / sizeof *FIELDS;

/* What rows [0, rows) of a task came to, and whether they could be run at all. */
static bool done_all(const row_task *task, int dtype, int instruction_set, int64_t start,
                     int64_t stop, row_report *report) {
    const bool is_long = (stop - start) * task->categories >= LONG;
    PyThreadState *state = is_long ? PyEval_SaveThread() : nullptr;
    const bool done = eligibility_rows(task, dtype, instruction_set, start, stop, report);
    if (state) PyEval_RestoreThread(state);
    if (!done) PyErr_NoMemory();
    return done;
}

static void store(const void *value, int dtype, double number) {
    if (value && dtype == 3)
        *(double *)value = number;
    else if (value)
        *(float *)value = (float)number;
}

/* run(dtype, instruction_set, start, stop, value, *fields of row_task in their order) -> (refused,
 * impossible); the objective is added up into `value`, a tensor of one number, or None. */
static PyObject *run(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 5 + FIELD_COUNT)
        return PyErr_Format(PyExc_TypeError, "run takes %zd arguments, not %zd", 5 + FIELD_COUNT,
                            count);
    row_task task = {};
#define ADDRESS(type, name) (const void **)&task.name,
    const void **const pointers[] = {ROW_POINTERS(ADDRESS)};
#define PLACE(type, name) &task.name,
    double *const numbers[] = {ROW_NUMBERS(PLACE)};
    int64_t *const integers[] = {ROW_INTEGERS(PLACE)};
    int64_t first[4];
    for (int64_t &number : first) number = PyLong_AsLongLong(*arguments++);
    const void *value;
    if (!read_pointer(*arguments++, &value)) return nullptr;
    for (const void **pointer : pointers)
        if (!read_pointer(*arguments++, pointer)) return nullptr;
    for (double *number : numbers) *number = PyFloat_AsDouble(*arguments++);
    for (int64_t *number : integers) *number = PyLong_AsLongLong(*arguments++);
    if (PyErr_Occurred()) return nullptr;
    row_report report;
    if (!done_all(&task, (int)first[0], (int)first[1], first[2], first[3], &report)) return nullptr;
    store(value, (int)first[0], report.value);
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
    if (!done_all(&task, dtype, instruction_set, 0, task.rows, &report)) return nullptr;
    store(value, dtype, report.value);
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
    if (!done_all(&task, dtype, instruction_set, 0, task.rows, &report)) return nullptr;
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

static PyObject *strings(Py_ssize_t count, const char *(*name)(int)) {
    PyObject *result = PyTuple_New(count);
    for (Py_ssize_t i = 0; result && i < count; i++)
        PyTuple_SET_ITEM(result, i, PyUnicode_FromString(name((int)i)));
    return result;
}

static const char *field_name(int index) { return FIELDS[index]; }

PyMODINIT_FUNC PyInit__rows(void) {
    data_ptr = PyUnicode_InternFromString("data_ptr");
    PyObject *module = PyModule_Create(&MODULE);
    PyObject *sets = strings(eligibility_instruction_sets(), eligibility_instruction_set_name);
    PyObject *fields = strings(FIELD_COUNT, field_name);
    if (!data_ptr || !module || !sets || !fields) return nullptr;
    if (PyModule_AddObject(module, "INSTRUCTION_SETS", sets) < 0 ||
        PyModule_AddObject(module, "FIELDS", fields) < 0)
        return nullptr;
    return module;
}
