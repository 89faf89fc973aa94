SELECT declared FROM types ORDER BY name
