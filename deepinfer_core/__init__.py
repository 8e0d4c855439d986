"""DeepInfer's backend-neutral core. The public names are loaded when first asked for, so that importing stays cheap."""
