module quire.dev/hack/cluster/gateway-api

go 1.25.0

require sigs.k8s.io/gateway-api v1.3.0
