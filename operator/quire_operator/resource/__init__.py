"""The InferenceService: its types, its CRD, and how it is read.

rules, kinds, base     what a field and an object may be
spec, accelerator, pod what a user wants
status                 what the operator says
structural, crd        the CRD, made from those
reading                from an object of the API server to those
"""
