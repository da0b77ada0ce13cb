/* What --profile of a command gives. */
#include "driver/profile.h"

#include <stdio.h>
#include <string.h>

#include "driver/report.h"

int deliver_profile(hadal_session *s, const command_line *line) {
    const char *path = option_get(line, OPTION_PROFILE), *dot = strrchr(path, '.');
    const bool json = dot && strcmp(dot, ".json") == 0, folded = dot && !strcmp(dot, ".folded");
    const char *text = hadal_profile_text(s, json ? "json" : folded ? "folded" : "text");
    if (!text) return hadal_fail(s, "internal", "there is no profile", NULL);
    if (*path) return hadal_write_text(s, path, text);
    report_end();
    fputs(text, stderr);
    return 0;
}
