#!/usr/bin/env bash
# Everything that a GPU must show, in one run of under 8 minutes on a bare machine that has Python
# with torch, CuPy, Numba, SciPy, pybind11, pytest, Hypothesis and transformers, and a C++ compiler.
#
#     bench/device.sh              build, run the parity tests marked gpu, time everything
#     bench/device.sh --rehearse   every line with the CPU forms at a small size; measures nothing
#
#     OUT (device)      folder for device.json and the parity tests' file
#     PYTHON (python3)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
out=${OUT:-device}
rehearse=()
marked=(-m gpu)

case ${1-} in
    '') ;;
    --rehearse)
        rehearse=(--rehearse)
        # What needs no device of them: the same array code with NumPy behind it.
        marked=(-m 'not gpu' -k 'device and not 10000')
        ;;
    *)
        echo "usage: ${0##*/} [--rehearse]; got '$1'" >&2
        exit 2
        ;;
esac

missing=0
for module in numpy scipy numba torch transformers pybind11 pytest hypothesis dateutil tqdm; do
    if ! "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)"; then
        echo "missing: $module" >&2
        missing=1
    fi
done
if [[ ${#rehearse[@]} == 0 ]] && ! "$python" -c 'import cupy; cupy.arange(3).sum()' >/dev/null; then
    echo "missing: CuPy, or a device that it can compute on" >&2
    missing=1
fi
((missing == 0)) || exit 1

mkdir -p "$out"
out=$(cd "$out" && pwd)
echo "device.sh: building ($(date +%T))"
# The sources as they are installed: kernels/ is zeromem.kernels, and the extension lies beside. The
# kernels are linked, so that what was compiled of them once is found again.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cp -r "$root/zeromem" "$tree/zeromem"
rm -rf "$tree"/zeromem/kernels "$tree"/zeromem/_hierarchy*.so
ln -s "$root/kernels" "$tree/zeromem/kernels"
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
read -r -a includes <<<"$("$python" -m pybind11 --includes)"
"${CXX:-c++}" -O2 -std=c++17 -shared -fPIC -fvisibility=hidden -ffp-contract=off \
    "${includes[@]}" -I "$root/csrc" "$root"/csrc/bindings.cpp "$root"/csrc/hierarchy.cpp \
    -o "$tree/zeromem/_hierarchy$suffix"
export PYTHONPATH="$tree"
# A kernel's machine code takes seconds to make: those of all modules on all cores at once.
(cd "$tree" && for module in zeromem/kernels/*_cpu.py; do basename "$module" .py; done \
    | xargs -P "$(nproc)" -I {} "$python" -c 'import zeromem.kernels.{}')

echo "device.sh: parity tests ($(date +%T))"
# From within the tree: a folder named zeromem in the current one would come first.
tests=("$root"/tests/test_kernels_*.py "$root"/tests/test_{backend,device}.py)
status=0
(cd "$tree" && timeout 150 "$python" -m pytest -q -c "$root/pyproject.toml" --rootdir "$root" \
    -o minversion=7 -p no:cacheprovider "${marked[@]}" --junitxml "$out/parity.xml" \
    "${tests[@]}") || status=$?

echo "device.sh: measuring ($(date +%T))"
parity=()
[[ -f $out/parity.xml ]] && parity=(--parity "$out/parity.xml")
"$python" "$root/bench/device.py" "${rehearse[@]}" "${parity[@]}" --out "$out/device.json" \
    || status=$?
[[ $status == 0 ]] && ended="done" || ended="ended with a failure (above, or in the file)"
echo "device.sh: $ended ($(date +%T)), $out/device.json"
exit "$status"
