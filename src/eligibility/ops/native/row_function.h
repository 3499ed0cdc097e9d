/* The row function for one element type; included by row_template.h, which defines the vectors. */

#define NAME(stem) CONCAT(CONCAT(stem, TYPE), ISA)

/* `count` <= LANES logits from `x`, −∞ where the mask forbids and beyond the end. */
INLINE VECTOR NAME(load)(const ELEMENT *x, const uint8_t *mask, int64_t count) {
    VECTOR z;
    if (count >= LANES) {
        z = LOAD_ELEMENTS(x);
        if (mask) {
            FLAGS legal;
            memcpy(&legal, mask, sizeof legal);
            z = SELECT(__builtin_convertvector(legal, INTEGERS) != 0, z, SPLAT(-INFINITY));
        }
        return z;
    }
    ELEMENT padded[LANES] = {0};
    for (int lane = 0; lane < count; lane++) padded[lane] = x[lane];
    z = LOAD_ELEMENTS(padded);
    for (int lane = 0; lane < LANES; lane++)
        if (lane >= count || (mask && !mask[lane])) z[lane] = -INFINITY;
    return z;
}

INLINE void NAME(store)(ELEMENT *out, VECTOR value, int64_t count) {
    if (count >= LANES) {
        STORE_ELEMENTS(out, value);
    } else {
        ELEMENT padded[LANES];
        STORE_ELEMENTS(padded, value);
        for (int lane = 0; lane < count; lane++) out[lane] = padded[lane];
    }
}

INLINE float NAME(maximum)(const ELEMENT *x, const uint8_t *mask, int64_t n) {
    VECTOR top[4];
    for (int i = 0; i < 4; i++) top[i] = SPLAT(-INFINITY);
    int64_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        for (int i = 0; i < 4; i++) {
            VECTOR z = NAME(load)(x + j + i * LANES, mask ? mask + j + i * LANES : nullptr, LANES);
            top[i] = SELECT(z > top[i], z, top[i]);
        }
    for (; j < n; j += LANES) {
        VECTOR z = NAME(load)(x + j, mask ? mask + j : nullptr, n - j);
        top[0] = SELECT(z > top[0], z, top[0]);
    }
    float result = -INFINITY;
    for (int i = 0; i < 4; i++)
        for (int lane = 0; lane < LANES; lane++)
            if (top[i][lane] > result) result = top[i][lane];
    return result;
}

/* Σ e^(z − top) and Σ e^(z − top) (z − top); keeps the e^(z − top) in `kept` if that is given. */
INLINE void NAME(sums)(const ELEMENT *x, const uint8_t *mask, int64_t n, float top, bool with_entropy,
                       ELEMENT *kept, double *mass, double *moment) {
    *mass = *moment = 0.0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t end = start + BLOCK < n ? start + BLOCK : n;
        VECTOR s[2] = {SPLAT(0), SPLAT(0)}, t[2] = {SPLAT(0), SPLAT(0)};
        for (int64_t j = start; j < end; j += 2 * LANES)
            for (int i = 0; i < 2; i++) {
                int64_t k = j + i * LANES;
                if (k >= end) break;
                VECTOR d = NAME(load)(x + k, mask ? mask + k : nullptr, end - k) - top;
                VECTOR e = EXPONENTIAL(d);
                if (kept) NAME(store)(kept + k, e, end - k);
                s[i] += e;
                if (with_entropy) t[i] += e * FINITE(d);
            }
        VECTOR s_all = s[0] + s[1], t_all = t[0] + t[1];
        for (int lane = 0; lane < LANES; lane++) {
            *mass += s_all[lane];
            *moment += t_all[lane];
        }
    }
}

/* out = e^d (c + k d) with d = z − top: the gradient everywhere but at the action. */
INLINE void NAME(spread)(const ELEMENT *x, const uint8_t *mask, int64_t n, float top, bool is_kept,
                         float c, float k, ELEMENT *out) {
    if (is_kept && k == 0.0f) {
        for (int64_t j = 0; j < n; j += LANES)
            NAME(store)(out + j, NAME(load)(out + j, nullptr, n - j) * c, n - j);
        return;
    }
    for (int64_t j = 0; j < n; j += LANES) {
        VECTOR d = NAME(load)(x + j, mask ? mask + j : nullptr, n - j) - top;
        VECTOR e = is_kept ? NAME(load)(out + j, nullptr, n - j) : EXPONENTIAL(d);
        NAME(store)(out + j, e * (k == 0.0f ? SPLAT(c) : FINITE(d) * k + c), n - j);
    }
}

static void NAME(rows)(const row_task *task) {
    int64_t n = task->categories;
    for (int64_t i = 0; i < task->rows; i++) {
        const ELEMENT *x = (const ELEMENT *)task->logits + i * task->logits_stride;
        const uint8_t *mask = task->mask ? task->mask + i * task->mask_stride : nullptr;
        int64_t a = task->action[i];
        float chosen = NAME(load)(x + a, mask ? mask + a : nullptr, 1)[0];
        float top = NAME(maximum)(x, mask, n);
        ELEMENT *out = (ELEMENT *)task->gradient + i * task->gradient_stride;
        float g = task->grad_log_prob ? task->grad_log_prob[i] : 0.0f;
        float h = task->grad_entropy ? task->grad_entropy[i] : 0.0f;
        /* One exponential a logit instead of two, where the output can hold it meanwhile. */
        bool keep = IS_FLOAT32 && task->gradient && (h == 0.0f || out != x);
        double mass, moment;
        NAME(sums)(x, mask, n, top, task->entropy != nullptr, keep ? out : nullptr, &mass, &moment);
        double log_mass = log(mass);
        float log_prob = (float)((double)chosen - top - log_mass);
        float entropy = (float)(log_mass - moment / mass);
        task->log_prob[i] = log_prob;
        if (task->entropy) task->entropy[i] = entropy;
        if (!task->gradient) continue;
        /* π (−g − h H − h log π), with log π = d − log_mass and π = e^d / mass */
        double c = -g - h * (entropy - log_mass);
        NAME(spread)(x, mask, n, top, keep, (float)(c / mass), (float)(-h / mass), out);
        float pi = expf(log_prob), surprise = pi > 0.0f ? log_prob + entropy : 0.0f;
        float own = -g * expm1f(log_prob) - h * pi * surprise; /* 1 − π_a without cancellation */
        NAME(store)(out + a, SPLAT(own), 1);
    }
}

#undef NAME
