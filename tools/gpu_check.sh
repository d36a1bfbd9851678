#!/bin/sh
# Runs what needs a GPU and writes what came out to DIR: gpu_check.json (machine, one result a test) and pytest.log.
#   usage: tools/gpu_check.sh DIR        from the root of the repository; PYTHON names another interpreter
set -eu
out=${1:?usage: tools/gpu_check.sh DIR}
python=${PYTHON:-python3}
mkdir -p "$out"
status=0
"$python" -m pytest -m gpu -rs -p no:cacheprovider --junitxml="$out/junit.xml" tests >"$out/pytest.log" 2>&1 || status=$?
"$python" - "$out" "$status" <<'PYTHON'
import json
import sys
import xml.etree.ElementTree as tree
from pathlib import Path

from picograd.compile import nvrtc
from picograd.runtime import cuda

out, status = Path(sys.argv[1]), int(sys.argv[2])
reason = cuda.available()
report = {"exit_status": status, "no_gpu": reason, "nvrtc": ".".join(map(str, nvrtc.version())), "tests": []}
if reason is None:
    report["arch"] = cuda.CudaDevice().target.arch
    report["driver"] = cuda.call("cuDriverGetVersion")
    report["device"] = cuda.call("cuDeviceGetName", 128, 0).decode().rstrip("\0 ")
junit = out / "junit.xml"
for case in tree.parse(junit).getroot().iter("testcase") if junit.exists() else []:
    found = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    name = f"{case.get('classname')}.{case.get('name')}"
    report["tests"].append({"name": name, "result": found[0] if found else "passed", "time_s": float(case.get("time", 0))})
junit.unlink(missing_ok=True)
counts = {r: sum(t["result"] == r for t in report["tests"]) for r in ("passed", "failure", "error", "skipped")}
report["counts"] = counts
(out / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
print(report.get("device", reason), counts)
PYTHON
exit "$status"
