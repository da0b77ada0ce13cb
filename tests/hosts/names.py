#!/usr/bin/env python3
"""names.py HADAL SPEC FOLDER SOURCE: headers of models of many names, in one program with each other and with the headers of the
system, as C and as C++; and names that no header may have. C++ has them before the system's, and with HADAL_FULL=1 after them as well."""
import os, re, shutil, subprocess, sys

hadal, spec, folder, source = sys.argv[1:]
shutil.rmtree(folder, ignore_errors=True)
os.makedirs(folder)
SYSTEM = """aio arpa/inet assert complex ctype dirent dlfcn elf err errno fcntl fenv float fmtmsg fnmatch ftw getopt glob grp iconv inttypes langinfo
libgen limits link linux/futex linux/perf_event linux/stat locale malloc math mqueue net/if netdb netinet/in netinet/tcp omp poll pthread pwd regex
sched search semaphore setjmp signal spawn stdint stdio stdlib string strings sys/epoll sys/file sys/inotify sys/ioctl sys/ipc sys/mman sys/mount
sys/msg sys/prctl sys/resource sys/select sys/sem sys/shm sys/socket sys/stat sys/statvfs sys/syscall sys/sysinfo sys/time sys/types sys/uio sys/un
sys/utsname sys/wait sys/xattr syslog tar termios time ucontext unistd utmpx wchar wctype wordexp""".split()
NAMES = "tiny Tiny tInY int class errno eof EoF sig signal null std main exit linux unix float isnan hrtx".split()
REJECTED = "f r w x mm in block hadal hadal_tiny hrt TINY F EOF _x malloc".split()


def compile(name):
    return subprocess.run([hadal, "compile", spec, "-q", "--emit=header", "-o", f"{folder}/{name}"], capture_output=True, text=True)


for name in NAMES:
    done = compile(name)
    assert done.returncode == 0, done.stderr
for name in REJECTED:
    done = compile(name)
    assert done.returncode == 1 and f'"{name}"' in done.stderr or name == "hrt", (name, done)
    assert not os.path.exists(f"{folder}/{name}.h"), name

head = "".join(f"#if __has_include(<{h}.h>)\n#include <{h}.h>\n#endif\n" for h in SYSTEM)
mine = "".join(f'#include "{name}.h"\n' for name in NAMES)
for language, compiler, flags in (("c", "gcc", ["-std=gnu17"]), ("cc", "g++", [])):
    if not shutil.which(compiler):
        continue
    orders = [("before", mine + head), ("after", head + mine)]
    for order, text in orders if language == "c" or os.environ.get("HADAL_FULL") == "1" else orders[:1]:
        path = f"{folder}/{order}.{language}"
        open(path, "w").write(text + "int all_of_them = 0;\n")
        done = subprocess.run([compiler, *flags, "-U_GNU_SOURCE", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", path], capture_output=True, text=True)
        assert done.returncode == 0, (compiler, order, done.stderr[:3000])

# What the comments of a header speak of is declared in it, of a model on one machine and of one that is divided.
done = subprocess.run([hadal, "compile", spec, "-q", "--emit=header", "--ranks", "2", "-o", f"{folder}/divided"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
for name in ("tiny", "divided"):
    text = open(f"{folder}/{name}.h").read()
    code = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    for mentioned in sorted(set(re.findall(rf"\b(?:{name}|{name.upper()})_\w+", text))):
        assert re.search(rf"\b{mentioned}\b", code), f"{name}.h speaks of {mentioned}, which it does not declare"

# Constants of a header, as those of `tiny`: what ends like one is in the table.
ends = set(re.findall(r"\bTINY_(\w+)\b(?= *=| +\S+ /)", open(f"{folder}/tiny.h").read())) | {"STATE_BYTES", "RANK_COUNT", "STAGE_COUNT"}
table = set(re.findall(r"^T\((\w+),", open(f"{source}/codegen/module/taken.def").read(), re.M))
open(f"{folder}/all.c", "w").write(head)
macros = subprocess.run(["gcc", "-D_GNU_SOURCE", "-dM", "-E", f"{folder}/all.c"], capture_output=True, text=True).stdout
found = {m[: -len(e) - 1].lower() for m in re.findall(r"^#define ([A-Z][A-Z0-9_]*)", macros, re.M) for e in ends if m.endswith("_" + e)}
assert len(ends) > 30 and found and not found - table, found - table
print(f"{len(NAMES)} headers with {len(SYSTEM)} of the system; {len(table)} names that are taken")
