#!/bin/sh
# kubernetes 37.0.2 and lightkube 1.0.1 with lightkube-models 1.37.0.8.
# Guess: to read an object, set a label and replace it leaves everything else as it was.
# Behaviour: both clients read into classes with the fields of their own version. A field that a newer
# server serves is gone after reading, and the replace takes it off the object.
# What the product does: `spec.schedulingGroup` and most of a pod cannot be changed, so such a replace
# is refused with 422 and the field's name; its own client hands out the documents as they came.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  "kubernetes==37.0.2" "lightkube==1.0.1" "lightkube-models==1.37.0.8"
"$folder/venv/bin/python" - <<'PY'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import kubernetes
import lightkube
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User
from lightkube.resources.core_v1 import Pod

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "default", "uid": "1", "resourceVersion": "5"},
    "spec": {"containers": [{"name": "c", "image": "i"}], "fieldOfALaterVersion": {"name": "g"}},
}
replaced = []


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(POD)

    def do_PUT(self):
        replaced.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(replaced[-1])


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"

configuration = kubernetes.client.Configuration()
configuration.host = url
official = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration))
pod = official.read_namespaced_pod("a", "default")
pod.metadata.labels = {"app": "web"}
official.replace_namespaced_pod("a", "default", pod)

cluster = KubeConfig.from_server(url).clusters["default"]
light = lightkube.Client(config=KubeConfig.from_one(cluster=cluster, user=User(token="t")))
pod = light.get(Pod, "a", namespace="default")
pod.metadata.labels = {"app": "web"}
light.replace(pod)

erased = [one["spec"] == {"containers": POD["spec"]["containers"]} for one in replaced]
for name, one in zip(("kubernetes", "lightkube"), replaced, strict=True):
    print(f"{name} replaced the pod with the fields {sorted(one['spec'])} in its spec")
sys.exit(erased != [True, True])
PY
