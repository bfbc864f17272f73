#!/usr/bin/env bash
# Publishes a parent and two children, and waits until all of it is delivered.
#
#   examples/publish_family.sh [QUEUE] [BROKER]      default: orders http://127.0.0.1:10000
#
# The children go out together, but only after every subscriber has acknowledged the parent.
set -euo pipefail

queue=${1:-orders}
messages=${2:-http://127.0.0.1:10000}/v1/queues/$queue/messages

publish() { # CONTENT [CURL OPTION]... prints the id, or what the broker says: what happened, and what to do about it
    curl --silent --show-error "$messages" --header "Content-Type: text/plain" --data "$1" "${@:2}" |
        python3 -c '
import json, sys

answer = json.loads(sys.stdin.read() or "{}")  # empty where curl has said that nobody answers
if "id" not in answer:
    sys.exit("\n".join(answer[name] for name in ("detail", "mend") if name in answer))
print(answer["id"])'
}

parent=$(publish customer.created)
echo "parent       $parent"
first=$(publish card.created --header "Syncbrok-Parent: $parent")
echo "first child  $first"
second=$(publish address.created --header "Syncbrok-Parent: $parent" --header 'Prefer: wait=30')
echo "second child $second"
