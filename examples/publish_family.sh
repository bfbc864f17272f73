#!/usr/bin/env bash
# Publishes a parent and two children, and waits until all of it is delivered.
#
#   examples/publish_family.sh [QUEUE] [BROKER]      default: orders http://127.0.0.1:10000
#
# The children go out together, but only after every subscriber has acknowledged the parent.
set -euo pipefail

queue=${1:-orders}
messages=${2:-http://127.0.0.1:10000}/v1/queues/$queue/messages

publish() { # CONTENT [CURL OPTION]... prints the id; --fail-with-body shows the broker's reason when it refuses
    curl --silent --show-error --fail-with-body "$messages" --header "Content-Type: text/plain" --data "$1" "${@:2}" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])'
}

parent=$(publish customer.created)
echo "parent       $parent"
echo "first child  $(publish card.created --header "Syncbrok-Parent: $parent")"
echo "second child $(publish address.created --header "Syncbrok-Parent: $parent" --header 'Prefer: wait=30')"
