{{/* An account, and a role with its binding. */}}

{{- define "quire.account" -}}
{{- $root := index . 0 -}}
{{- $account := (index $root.Values (index . 1)).serviceAccount -}}
{{- if $account.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "quire.serviceAccountName" . | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "quire.labels" . | nindent 4 }}
  {{- with $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Takes a dictionary: root, component, name, namespace (empty: of the whole cluster), rules. */}}
{{- define "quire.granted" -}}
{{- $own := list .root .component }}
{{- $scope := ternary "" "Cluster" (ne .namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}Role
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "quire.labels" $own | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}RoleBinding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "quire.labels" $own | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $scope }}Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "quire.serviceAccountName" $own | quote }}
    namespace: {{ .root.Release.Namespace | quote }}
{{- end -}}

{{/* What a component may do in what is served: in the whole cluster, or in each namespace. Takes a
dictionary: root, component, rules, clusterRules (those that only a role of the cluster can have). */}}
{{- define "quire.grantedWhereServed" -}}
{{- $some := dict "root" .root "component" .component "rules" .rules }}
{{- if .root.Values.namespaces }}
{{- $name := printf "%s-%s" (include "quire.fullname" .root) .component }}
{{- range splitList "," (include "quire.namespaces" .root) }}
{{- include "quire.granted" (merge (dict "namespace" . "name" $name) $some) }}
{{- end }}
{{- else }}
{{- $name := include "quire.clusterName" (list .root .component) }}
{{- $rules := printf "%s\n%s" .rules .clusterRules | trimSuffix "\n" }}
{{- include "quire.granted" (merge (dict "namespace" "" "name" $name "rules" $rules) $some) }}
{{- end }}
{{- end -}}
