{{/* Values that are each of the right type, and wrong together or as a quantity: refused with what to do,
before anything of the release is there. */}}

{{- define "quire.checkSense" -}}
{{- range $component := list "operator" "gateway" -}}
{{- include "quire.checkResources" (list $ $component) -}}
{{- include "quire.checkPodLabels" (list $ $component) -}}
{{- end -}}
{{- include "quire.checkNames" . -}}
{{- include "quire.checkReplicas" . -}}
{{- include "quire.checkVolumes" . -}}
{{- include "quire.checkRegistries" . -}}
{{- $operator := .Values.operator.serviceAccount -}}
{{- $gateway := .Values.gateway.serviceAccount -}}
{{- if and $operator.create $gateway.create $operator.name (eq $operator.name $gateway.name) -}}
{{- fail (printf "\n\noperator.serviceAccount.name and gateway.serviceAccount.name are both %s, and the chart is to make both: give them names of their own, for their rights differ" $operator.name) -}}
{{- end -}}
{{- end -}}

{{/* A Service has a stricter name than a release. */}}
{{- define "quire.checkNames" -}}
{{- $name := include "quire.fullname" . -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $name) -}}
{{- fail (printf "\n\nobjects would be named %s-gateway, and a Service's name begins with a letter and has no dot: set fullnameOverride, or give the release another name" $name) -}}
{{- end -}}
{{- end -}}

{{- define "quire.checkReplicas" -}}
{{- $scaled := .Values.gateway.autoscaling -}}
{{- $idle := dict "operator" "acts on services" "gateway" "answers requests" -}}
{{- range $component, $what := $idle -}}
{{- $isFixed := or (eq $component "operator") (not $scaled.enabled) -}}
{{- if and $isFixed (lt (int (index $.Values $component).replicas) 1) -}}
{{- fail (printf "\n\n%s.replicas is 0, and nobody %s then: set 1 or more. To stop for a while: kubectl --namespace %s scale deployment/%s-%s --replicas=0" $component $what $.Release.Namespace (include "quire.fullname" $) $component) -}}
{{- end -}}
{{- end -}}
{{- if $scaled.enabled -}}
{{- if gt (int $scaled.minReplicas) (int $scaled.maxReplicas) -}}
{{- fail (printf "\n\ngateway.autoscaling.minReplicas is %v, and maxReplicas %v: raise maxReplicas, or lower minReplicas" $scaled.minReplicas $scaled.maxReplicas) -}}
{{- end -}}
{{- $resources := .Values.gateway.resources | default dict -}}
{{- $requests := $resources.requests | default dict -}}
{{- $limits := $resources.limits | default dict -}}
{{- $cpu := include "quire.amount" (default $limits.cpu $requests.cpu | default 0) -}}
{{- if not (gt (float64 $cpu) 0.0) -}}
{{- fail "\n\ngateway.autoscaling goes by the use of processors, in percent of what is requested: set gateway.resources.requests.cpu" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes a list of the root and the component. */}}
{{- define "quire.checkResources" -}}
{{- $component := index . 1 -}}
{{- $resources := index (index . 0).Values $component "resources" | default dict -}}
{{- $limits := $resources.limits | default dict -}}
{{- range $part := list "limits" "requests" -}}
{{- range $name, $quantity := index $resources $part -}}
{{- $place := printf "%s.resources.%s.%s" $component $part $name -}}
{{- if not (regexMatch "^(cpu|memory|ephemeral-storage|hugepages-.+|[^/]+[.][^/]+/.+)$" $name) -}}
{{- fail (printf "\n\n%s: there is no resource %s. Kubernetes has cpu, memory and ephemeral-storage; others have a domain, as nvidia.com/gpu" $place $name) -}}
{{- end -}}
{{- $amount := include "quire.amount" $quantity -}}
{{- if not $amount -}}
{{- fail (printf "\n\n%s is %q, which is no quantity: say 500m or 2 of processors, 256Mi or 2Gi of memory" $place (toString $quantity)) -}}
{{- end -}}
{{- if and (eq $name "memory") (lt (float64 $amount) 16777216.0) -}}
{{- fail (printf "\n\n%s is %v, which are %v bytes, and no program starts with less than 16Mi: say 256Mi or 2Gi" $place $quantity $amount) -}}
{{- end -}}
{{- if and (eq $part "requests") (hasKey $limits $name) -}}
{{- $limit := index $limits $name -}}
{{- if gt (float64 $amount) (float64 (include "quire.amount" $limit)) -}}
{{- fail (printf "\n\n%s is %v, and the limit is %v: raise %s.resources.limits.%s, or request less" $place $quantity $limit $component $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A quantity as a number, as Kubernetes reads it; empty where it is none. */}}
{{- define "quire.amount" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^([0-9]+[.]?[0-9]*|[.][0-9]+)" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- $units := dict "" 1.0 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 -}}
{{- $binary := dict "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $factor := index (merge $units $binary) $unit -}}
{{- if and $number $factor -}}
{{- mulf (float64 $number) $factor -}}
{{- else if and $number (regexMatch "^[eE][+-]?[0-9]{1,2}$" $unit) -}}
{{- float64 $text -}}
{{- end -}}
{{- end -}}

{{/* Takes a list of the root and the component. */}}
{{- define "quire.checkPodLabels" -}}
{{- $component := index . 1 -}}
{{- $own := include "quire.podLabels" . | fromYaml -}}
{{- range $name, $_ := index (index . 0).Values $component "podLabels" -}}
{{- if hasKey $own $name -}}
{{- fail (printf "\n\n%s.podLabels has %s, by which pods are found: leave it out, or take a name of your own" $component $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "quire.checkVolumes" -}}
{{- $there := ternary (list "tmp" "root" "tls") (list "tmp" "root") (ne .Values.gateway.tlsSecretName "") -}}
{{- range .Values.gateway.extraVolumes -}}
{{- if has .name $there -}}
{{- fail (printf "\n\ngateway.extraVolumes has a volume %s, and so has the pod already: give it another name, there and in gateway.extraVolumeMounts" .name) -}}
{{- end -}}
{{- $there = append $there .name -}}
{{- end -}}
{{- range .Values.gateway.extraVolumeMounts -}}
{{- if not (has .name $there) -}}
{{- fail (printf "\n\ngateway.extraVolumeMounts mounts %s, which is no volume of the pod: add it to gateway.extraVolumes; there are %s" .name (join ", " $there)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "quire.checkRegistries" -}}
{{- $images := dict "image" .Values.image "operator.image" .Values.operator.image "gateway.image" .Values.gateway.image "engine.image" .Values.engine.image "engine.cpuImage" .Values.engine.cpuImage -}}
{{- range $name, $image := $images -}}
{{- if not (regexMatch "^([A-Za-z0-9][-._A-Za-z0-9]*(:[0-9]+)?(/[A-Za-z0-9][-._A-Za-z0-9]*)*)?$" $image.registry) -}}
{{- fail (printf "\n\n%s.registry is %q: say HOST, HOST:PORT or HOST/PATH, without https:// before it and a slash behind it" $name $image.registry) -}}
{{- end -}}
{{- end -}}
{{- end -}}
