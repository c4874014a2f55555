"""The manifests of deploy/kubernetes: read by every `make test`, run by a real kubelet in `make test-kubernetes`.

manifests    the examples, and what kustomize makes of them
checks       pure: what a cluster would refuse, and what a schema does not see
programs     kustomize and the kubelet, built once from their Go modules
images       what the node runs: the sidecar, a PHP app, the pod's pause
node         containerd and the kubelet
pods         pure: the pod of a Deployment or Job, for a kubelet without a cluster
environment  the examples on a node
journal      what their workers noted
scenario     the points that are shown
"""
