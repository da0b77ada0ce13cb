#include "driver/by_depth.h"

#include <string.h>

#include "driver/report.h"

bool by_depth_is_picture(const command_line *line) {
    const char *form = option_get(line, OPTION_BY_DEPTH);
    const size_t n = form ? strlen(form) : 0;
    return n > 4 && strcmp(form + n - 4, ".svg") == 0;
}

int check_by_depth(hadal_session *s, const command_line *line) {
    const char *form = option_get(line, OPTION_BY_DEPTH);
    if (!form || !*form || strcmp(form, "json") == 0 || by_depth_is_picture(line)) return 0;
    return hadal_fail(s, "usage", "--by-depth is printed, as json, or a file OUT.svg",
                      "for example --by-depth=depth.svg");
}

int deliver_by_depth(hadal_session *s, const command_line *line) {
    const char *form = option_get(line, OPTION_BY_DEPTH);
    const bool picture = by_depth_is_picture(line);
    const char *text = hadal_by_depth_text(s, picture ? "svg" : *form ? form : "text");
    if (!text) return hadal_fail(s, "internal", "there is no RMS by depth", NULL);
    if (picture) return hadal_write_text(s, form, text);
    (void)report_text(text, strlen(text)); /* main reports a failed write */
    return 0;
}
