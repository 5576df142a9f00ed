#!/usr/bin/env python3
"""Keeps the project's style rules: lengths, names, include directions, header guards.

Usage: check_style.py ROOT. Prints one line a fault and exits 1 if there is any; with --self-test it
checks itself on small samples first.
"""
import pathlib
import re
import sys

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
# The rotated loop of the chain: the compiler serialises matrix products whose accumulators cross a
# call, so it stands in one function.
LONG_FUNCTIONS_ALLOWED = {"kernels/cuda/ring_chain.cuh": 125}
LINE_COLUMNS_MAX = 100
FOLDERS = ("proto", "worker", "coordinator", "statestore", "kernels", "client", "tests")
CODE = (".h", ".cc", ".cu", ".cuh", ".inc")
BANNED_WORDS = ("node", "job", "blob", "data", "info", "util", "utils", "common", "manager", "helper")
# GetServerInfo is the API's own name; the rest are the libraries' names.
NAMES_ALLOWED = {"ServerInfo", "GetServerInfoRequest"}
# Who may include whom (DESIGN section 5). Tests and client may include everything.
INCLUDES_ALLOWED = {
    "kernels": {"kernels"},
    "proto": {"proto"},
    "statestore": {"statestore", "proto"},
    "worker": {"worker", "kernels", "statestore", "proto"},
    "coordinator": {"coordinator", "statestore", "proto"},
}
# Heavy headers stay out of headers. In these they are the point: what a call, a message is.
HEAVY_ALLOWED = {"client/cli_verb.h", "client/connection.h", "client/messages.h",
                 "client/snapshot/snapshot_calls.h"}
HEAVY = re.compile(r'#include [<"](grpcpp/|google/protobuf|spdlog/|CLI/|nlohmann/json\.hpp|proto/\w+(\.grpc)?\.pb\.h)')
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")


def function_lengths(lines):
    """Yields (first line number, length) of each block that looks like a function definition."""
    for indent in ("", "  "):
        start = None
        for number, line in enumerate(lines, 1):
            inside = line.startswith(indent) and len(line) > len(indent)
            first = line[len(indent)] if inside else ""
            if first and first not in " }#/":
                start = number if start is None else start
            if line.rstrip() == indent + "}":
                if start is not None and is_function(lines[start - 1:number]):
                    yield start, number - start + 1
                start = None
            elif line.rstrip().endswith(";") and first != " " and inside and first != "}":
                start = None
            elif line.rstrip() == "" or line.startswith(indent + "};"):
                if line.startswith(indent + "};") or not open_brace(lines, start, number):
                    start = None


def open_brace(lines, start, number):
    """True if a block that began at line `start` is still open at line `number`."""
    if start is None:
        return False
    text = "".join(lines[start - 1:number])
    return text.count("{") > text.count("}")


def is_function(block):
    head = "".join(block).split("{", 1)[0]
    return "(" in head and not re.match(r"\s*(namespace|class|struct|enum|union|extern)\b", head)


def name_faults(path, text):
    words = re.split(r"[_.\-]", path.name.lower())
    for word in words[:-1]:
        if word in BANNED_WORDS:
            yield f"{path}: '{word}' in a file name says nothing"
    for match in re.finditer(r"\b(?:class|struct|enum class|message)\s+([A-Z]\w+)", text):
        name = match.group(1)
        for word in re.findall(r"[A-Z][a-z0-9]*", name):
            if word.lower() in BANNED_WORDS and name not in NAMES_ALLOWED:
                yield f"{path}: '{word}' in the type name {name} says nothing"


def include_faults(path, top, lines):
    for number, line in enumerate(lines, 1):
        match = re.match(r'#include "([a-z]+)/', line)
        if match and top in INCLUDES_ALLOWED and match.group(1) in FOLDERS:
            if match.group(1) not in INCLUDES_ALLOWED[top]:
                yield f"{path}:{number}: {top}/ must not include {match.group(1)}/"
        if path.suffix == ".h" and top not in ("tests", "proto") and HEAVY.match(line):
            if str(path) not in HEAVY_ALLOWED:
                yield f"{path}:{number}: heavy header in a header: {line.strip()}"


def guard_faults(path, text):
    guard = "DELTAFILL_" + re.sub(r"[/.\-]", "_", str(path)).upper() + "_"
    if f"#ifndef {guard}\n#define {guard}\n" not in text:
        yield f"{path}: header guard must be {guard}"


def file_faults(path, text):
    lines = text.splitlines(keepends=True)
    top = path.parts[0]
    if len(lines) > FILE_LINES_MAX:
        yield f"{path}: {len(lines)} lines; the limit is {FILE_LINES_MAX}"
    if any(part in ("util", "utils", "common") for part in path.parts[:-1]):
        yield f"{path}: folders are named for what is in them, not util or common"
    if path.suffix != ".py":
        yield from name_faults(path, text)
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line) and path.name != "check_style.py":
            yield f"{path}:{number}: unfinished: {line.strip()}"
        if len(line.rstrip("\n")) > LINE_COLUMNS_MAX and path.suffix in CODE and "http" not in line:
            yield f"{path}:{number}: over {LINE_COLUMNS_MAX} columns"
    if path.suffix in CODE:
        yield from include_faults(path, top, lines)
        for start, length in function_lengths(lines):
            if length > LONG_FUNCTIONS_ALLOWED.get(str(path), FUNCTION_LINES_MAX):
                yield f"{path}:{start}: function of {length} lines; the limit is {FUNCTION_LINES_MAX}"
    if path.suffix == ".h" and not path.name.endswith("-inl.h"):  # Highway re-includes those
        yield from guard_faults(path, text)


def sources(root):
    for folder in FOLDERS + ("deploy",):
        for path in sorted((root / folder).rglob("*")):
            if "results" in path.parts or "fixtures" in path.parts or not path.is_file():
                continue
            if path.suffix in CODE + (".py", ".proto", ".sh"):
                yield path.relative_to(root)


def self_test():
    long_body = "int F(int a) {\n" + "  a += 1;\n" * 80 + "}\n"
    method = "class A {\n  int F() {\n" + "    x();\n" * 80 + "  }\n};\n"
    faults = list(file_faults(pathlib.Path("kernels/x.cc"), long_body))
    assert any("function of 82" in fault for fault in faults), faults
    faults = list(file_faults(pathlib.Path("kernels/x.cc"), method))
    assert any("function of 82" in fault for fault in faults), faults
    faults = list(file_faults(pathlib.Path("kernels/x.cc"), '#include "worker/model/model.h"\n'))
    assert any("must not include worker/" in fault for fault in faults), faults
    faults = list(file_faults(pathlib.Path("worker/job_util.h"), "class TokenHelper {};\n"))
    assert len(faults) == 4, faults


def main():
    self_test()
    root = pathlib.Path(sys.argv[1])
    faults = []
    for path in sources(root):
        faults += file_faults(path, (root / path).read_text(encoding="utf-8"))
    print("\n".join(faults) if faults else "style: no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
