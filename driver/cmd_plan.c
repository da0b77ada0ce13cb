/* hadal plan: predicts how fast a model runs in several shapes on given hosts. */
#include <string.h>

#include "driver/commands.h"
#include "driver/pipeline.h"

enum { MOST_HOSTS = 4096, MOST_TOKENS = 1 << 30 };

static bool read_hosts(hadal_session *s, const command_line *line, int64_t *hosts, size_t *n) {
    option_number_list list;
    if (!option_numbers(s, line, OPTION_HOSTS, "1", &list)) return false;
    *n = list.n;
    for (size_t i = 0; i < list.n; i++) {
        hosts[i] = list.at[i];
        if (hosts[i] >= 1 && hosts[i] <= MOST_HOSTS) continue;
        hadal_fail(s, "usage", "--hosts are 1 to 4096 each", "for example --hosts 1,2,4,8");
        return false;
    }
    if (*n) return true;
    hadal_fail(s, "usage", "--hosts names no number of hosts", "for example --hosts 1,2,4,8");
    return false;
}

int cmd_plan(hadal_session *s, const command_line *line) {
    int64_t hosts[OPTION_NUMBERS];
    long long prompt, position;
    hadal_pipeline pipeline;
    hadal_plan_options o = {.struct_size = sizeof o,
                            .host = option_get(line, OPTION_HOST),
                            .hosts = hosts,
                            .json = option_given(line, OPTION_JSON),
                            .activations = option_get(line, OPTION_ACTIVATIONS),
                            .any_chunk = !option_given(line, OPTION_CHUNK)};
    if (!o.host)
        return hadal_fail(s, "usage", "a plan needs to know a host: --host",
                          "hadal machine --json -o host.json on one, then --host host.json");
    if (!read_hosts(s, line, hosts, &o.n_hosts) ||
        !option_number(s, line, OPTION_PREFILL, 4096, 1, MOST_TOKENS, &prompt) ||
        !option_number(s, line, OPTION_DECODE, 4096, 0, MOST_TOKENS, &position))
        return 1;
    o.prompt = prompt;
    o.position = position;
    if (make_pipeline(s, line, &pipeline) || load_model(s, line, NULL)) return 1;
    const char *text = hadal_plan(s, &pipeline, &o);
    return text ? deliver_text(s, line, text) : 1;
}
