-- As before, and cheap enough for every statement. A session is on one database of one cluster for as long as it lives, so that
-- part of its lineage is looked up once and kept with it; the timeline changes when a standby is promoted, under its sessions.
CREATE FUNCTION penstock.find_cluster() RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    -- Asked for what cannot be kept, too: where that is refused, nothing is kept, and the lineage is not known.
    PERFORM pg_walfile_name(pg_current_wal_lsn());
    RETURN set_config(
        'penstock.cluster',
        concat_ws(
            '/',
            (SELECT system_identifier FROM pg_control_system()),
            (SELECT oid FROM pg_database WHERE datname = current_database())
        ),
        false
    );
EXCEPTION
    WHEN insufficient_privilege OR feature_not_supported OR undefined_function OR object_not_in_prerequisite_state THEN
        RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION penstock.lineage() RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    cluster text := current_setting('penstock.cluster', true);
BEGIN
    IF coalesce(cluster, '') = '' THEN
        cluster := penstock.find_cluster();
    END IF;
    IF cluster IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN cluster || '/' || 'penstock.admission'::regclass::oid::text || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8);
END
$$;
