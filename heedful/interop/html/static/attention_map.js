// attention_map
