{{/* Refuses to go on without a value that templates cannot do without: of an older chart's defaults they
would make nonsense. */}}
{{- define "quire.checkValues" -}}
{{- range $name := include "quire.neededValues" . | fromYamlArray -}}
{{- $place := $.Values -}}
{{- range splitList "." $name -}}
{{- if not (and (kindIs "map" $place) (hasKey $place .)) -}}
{{- fail (printf "\n\nthere is no value %s. Defaults of an older chart lack it, which --reuse-values takes in place of this one's: say --reset-then-reuse-values. Set to null, it has none either" $name) -}}
{{- end -}}
{{- $place = index $place . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Beginning of the names of objects: the release's name where it says quire already. Whatever Helm
renders first asks for it. */}}
{{- define "quire.fullname" -}}
{{- include "quire.checkValues" . -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of an object of the whole cluster: another release, elsewhere, has another. Takes a list of
the root and the rest of the name. */}}
{{- define "quire.clusterName" -}}
{{- $root := index . 0 -}}
{{- printf "%s:%s-%s" $root.Release.Namespace (include "quire.fullname" $root) (index . 1) -}}
{{- end -}}

{{/* Labels by which pods of a component are found, and which therefore never change. Takes a list of
the root and the component. */}}
{{- define "quire.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of all objects of a component. */}}
{{- define "quire.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{ include "quire.selectorLabels" . }}
app.kubernetes.io/part-of: quire
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end -}}

{{/* Name of a component's account. */}}
{{- define "quire.serviceAccountName" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $account := (index $root.Values $component).serviceAccount -}}
{{- $own := printf "%s-%s" (include "quire.fullname" $root) $component -}}
{{- default (ternary $own "default" $account.create) $account.name -}}
{{- end -}}

{{/* Name of an image. Takes a list of the root and the image's values. */}}
{{- define "quire.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := default $root.Values.image.registry $image.registry -}}
{{- $name := ternary (printf "%s/%s" $registry $image.repository) $image.repository (ne $registry "") -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Namespaces that are served, with commas between; empty: all. The release's own is always among
them: the operator finds the gateway's pods there. */}}
{{- define "quire.namespaces" -}}
{{- if .Values.namespaces -}}
{{- append .Values.namespaces .Release.Namespace | uniq | sortAlpha | join "," -}}
{{- end -}}
{{- end -}}
