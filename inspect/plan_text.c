/* The plan as a table. */
#include "inspect/plan_rates.h"
#include "inspect/units.h"

/* Where the shares of the limits are from that kernels reach. */
static const char *what_is_reached(const plan *p, hd_arena *a) {
    const int known = plan_reached_known(&p->host), all = PLAN_FACTS - PLAN_REACHED;
    if (known == 0) return "reach shares of that as a table has them, of the slowest of three CPUs";
    if (known == all) return "reach shares of that as measured there";
    return hd_printf(
        a, "reach %d of %d shares of that as measured there, the others as a table has them", known,
        all);
}

static void describe_host(const plan *p, hd_text *out) {
    const double *f = p->host.fact;
    hd_text_f(out, "a host   %s of memory, %.4g GB/s from it, %.4g GFLOP/s",
              inspect_bytes(out->arena, (uint64_t)f[PLAN_MEMORY]), f[PLAN_READ] / 1e9,
              f[PLAN_FMA] / 1e9);
    if (f[PLAN_INT8] > 0) hd_text_f(out, ", %.4g Gop/s in bytes", f[PLAN_INT8] / 1e9);
    if (f[PLAN_TILES] > 0) hd_text_f(out, ", a matrix unit of %.4g GFLOP/s", f[PLAN_TILES] / 1e9);
    if (f[PLAN_NETWORK] > 0)
        hd_text_f(out, "\nnetwork  %.4g Gbit/s, %.4g us", f[PLAN_NETWORK] / 1e9,
                  f[PLAN_LATENCY] * 1e6);
    hd_text_f(out, "\nkernels  %s", what_is_reached(p, out->arena));
    hd_text_f(out, "\ncalls    a prompt of %lld tokens, a token behind %lld\n\n",
              (long long)p->call.prompt, (long long)p->call.position);
}

static const char *padded(hd_text *out, uint64_t bytes) {
    return hd_printf(out->arena, "%12s", inspect_bytes(out->arena, bytes));
}

/* Tokens per second: four digits, and all of those in front of the point. */
static void add_rate(hd_text *out, int width, double rate) {
    hd_text_f(out, rate < 1e4 ? "%*.4g" : "%*.0f", width, rate);
}

static void print_shape(const plan *p, const plan_shape *s, hd_text *out) {
    const size_t number = (size_t)(s - p->shapes.at);
    hd_text_f(out, "%5lld  %5lld x %-6lld", (long long)(s->ranks * s->stages), (long long)s->ranks,
              (long long)s->stages);
    if (s->refused) {
        hd_text_f(out, "  %s\n", s->refused);
        return;
    }
    hd_text_f(out, "%s%s%s%s", padded(out, s->weight_bytes), padded(out, s->state_bytes),
              padded(out, s->arena_bytes), padded(out, s->bytes));
    hd_text_f(out, "%s%s", padded(out, (uint64_t)s->prefill_crossing),
              padded(out, (uint64_t)s->decode_crossing));
    hd_text_f(out, "%9lld", (long long)s->chunk);
    add_rate(out, 11, s->prefill_rate);
    hd_text_f(out, "  %-10s", plan_binds(s->prefill));
    add_rate(out, 10, s->decode_rate);
    hd_text_f(out, "  %-10s", plan_binds(s->decode));
    hd_text_f(out, "%s%s%s\n", s->fits ? "" : "does not fit",
              number == p->best_prefill ? "best prefill" : "",
              number == p->best_decode ? number == p->best_prefill ? ", best decode" : "best decode"
                                       : "");
}

void plan_text(const plan *p, hd_text *out) {
    hd_text_f(out, "%s\n", p->model);
    describe_host(p, out);
    hd_text_add(out,
                "       ranks x       the fullest host holds                          "
                "leave a host for a token       of a  prefill               decode\n"
                "hosts  stages        weights      states       arena      in all"
                "     prefill      decode    chunk   tokens/s  held by    tokens/s  held by\n");
    for (size_t i = 0; i < p->shapes.n; i++)
        print_shape(p, &p->shapes.at[i], out);
    if (p->best_decode == p->shapes.n)
        hd_text_add(out, "\nno shape fits: more hosts, more memory, or smaller types "
                         "(--weights-dtype, --cache-dtype) are needed\n");
}
